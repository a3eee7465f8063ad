# 36 epochs of COCO for the edge models, batches of 64: AdamW, the backbone at a tenth of the rate, falling by 0.8 from
# block to block. Not run here; the large-scale jitter wants a long schedule.
max_epochs = 36
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=max_epochs, val_interval=4)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(decay_rate=0.8, backbone_lr_mult=0.1, norm_decay_mult=0.0),
    clip_grad=dict(max_norm=10.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=64)
