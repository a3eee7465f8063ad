# 40000 iterations of 16 images, as MMSegmentation's 40k schedules: AdamW, the backbone at a tenth of the rate, falling
# by 0.8 from block to block.
max_iters = 40000
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=4000)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(decay_rate=0.8, backbone_lr_mult=0.1, norm_decay_mult=0.0),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=1000, end=max_iters, by_epoch=False),
]
auto_scale_lr = dict(base_batch_size=16)
