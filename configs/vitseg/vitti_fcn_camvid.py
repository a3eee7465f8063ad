"""A light head on a ViT-Ti from random weights, street scenes (CamVid) at 336 x 252.

    python tools/train.py configs/vitseg/vitti_fcn_camvid.py

What vitti-distilled_fcn_camvid.py is compared with. Measured here on one of two CPU cores in 28 minutes, beside other
work: mIoU 27.49, pixel accuracy 71.83.
"""

_base_ = ["vits-dinov2_fcn_camvid.py"]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomResize", scale=(480, 360), ratio_range=(0.7, 1.2), keep_ratio=True),
    dict(type="RandomCrop", crop_size=(252, 336), cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(336, 252), keep_ratio=True),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
model = dict(
    data_preprocessor=dict(size=(252, 336)),
    backbone=dict(arch="tiny", layer_scale_init=None, init_cfg=None, frozen_stages=-1),
    neck=dict(in_channels=[192, 192, 192]),
)
max_iters = 400
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(
    optimizer=dict(lr=5e-4),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(checkpoint=dict(interval=max_iters))
custom_hooks = []  # random crops: nothing to keep
