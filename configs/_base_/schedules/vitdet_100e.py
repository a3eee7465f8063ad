# ViTDet's schedule on COCO (arXiv:2203.16527; detectron2 at 02b5c4e, projects/ViTDet), for batches of 64 images.
# 100 epochs = 184375 iterations * 64 images / 118000 images; the rate falls at 163889 and 177546.
max_iters = 184375
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=5000)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(type="MultiStepLR", begin=0, end=max_iters, by_epoch=False, milestones=[163889, 177546], gamma=0.1),
]
auto_scale_lr = dict(base_batch_size=64)
