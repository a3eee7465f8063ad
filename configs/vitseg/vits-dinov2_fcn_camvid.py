"""A light head on a DINOv2 ViT-S that is fine-tuned as a whole, street scenes (CamVid).

    python tools/train.py configs/vitseg/vits-dinov2_fcn_camvid.py

The test images are of a video that none of the training images come from, so scales and colours vary in training; and
poles, signs and bicyclists are a few pixels of a hundred, hence the weights of classes and the Lovasz loss
(arXiv:1705.08790). Measured here on one of two CPU cores in 65 minutes, beside other work: mIoU 46.96, pixel accuracy
88.54; poles, signs and bicyclists are not learned yet.
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/camvid_segmentation.py",
    "../_base_/models/dinov2_small.py",
]

crop_size = (336, 336)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomResize", scale=(480, 360), ratio_range=(0.75, 1.75), keep_ratio=True),
    dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
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
    data_preprocessor=dict(type="SegDataPreProcessor", size=crop_size, pad_val=0, seg_pad_val=255),
    backbone=dict(out_indices=(3, 7, 11), drop_path_rate=0.1),
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
        loss_decode=[
            dict(
                type="CrossEntropyLoss",
                use_sigmoid=False,
                # Square roots of median / frequency of the pixels of a class.
                class_weight=[0.52, 0.44, 2.14, 0.38, 1.0, 0.68, 1.96, 2.0, 0.87, 2.65, 3.92],
            ),
            dict(type="LovaszLoss", loss_type="multi_class", per_image=False, reduction="none"),
        ],
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="whole"),
)

max_iters = 240
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=max_iters)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(decay_rate=0.85, backbone_lr_mult=0.15, norm_decay_mult=0.0),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=50))
