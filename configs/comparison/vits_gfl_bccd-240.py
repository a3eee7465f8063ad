"""GFL on a ViT-S from random weights, blood cells at 320 x 240: a comparison of backbones without pre-training.

    python tools/train.py configs/comparison/vits_gfl_bccd-240.py

The other backbones of this folder train under the same schedule. Score: not measured yet.
"""

_base_ = ["../vitdet/vits-dinov2_gfl_bccd.py"]
image_size = (320, 240)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", scale=image_size, keep_ratio=True),
    dict(type="RandomFlip", prob=[0.25, 0.25, 0.25], direction=["horizontal", "vertical", "diagonal"]),
    dict(type="PackDetInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=image_size, keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(
        type="PackDetInputs",
        meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "instances"),
    ),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

model = dict(
    backbone=dict(frozen_stages=-1, out_indices=(-1,), drop_path_rate=0.1, init_cfg=None),
    neck=dict(in_channels=384, in_index=-1),
)
max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
custom_hooks = []
