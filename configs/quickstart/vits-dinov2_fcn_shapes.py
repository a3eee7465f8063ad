"""A first training: a small head on a frozen DINOv2 ViT-S, on the drawn shapes of tools/generate_data.py.

    python tools/generate_data.py data/shapes
    python tools/train.py configs/quickstart/vits-dinov2_fcn_shapes.py

One to two minutes on two cores. Score: none that means anything, it shows that training works.
"""

_base_ = ["../_base_/seg_runtime.py", "../_base_/models/dinov2_small.py"]

data_root = "{{$VITDENSE_DATA:data}}/shapes"
metainfo = dict(
    classes=("ground", "disc", "square", "triangle"),
    palette=[(120, 120, 120), (230, 57, 70), (67, 97, 238), (255, 214, 10)],
)

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(224, 224)),
    backbone=dict(out_indices=(5, 8, 11), frozen_stages=12),
    decode_head=dict(
        type="FCNHead",
        in_channels=[384, 384, 384],
        in_index=[0, 1, 2],
        input_transform="resize_concat",
        channels=128,
        num_convs=1,
        kernel_size=3,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=4,
        norm_cfg=dict(type="BN", requires_grad=True),
        align_corners=False,
        loss_decode=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0, avg_non_ignore=True),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="whole"),
)

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(224, 224), keep_ratio=False),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type="BaseSegDataset",
        data_root=data_root,
        data_prefix=dict(img_path="images/train", seg_map_path="masks/train"),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="BaseSegDataset",
        data_root=data_root,
        data_prefix=dict(img_path="images/val", seg_map_path="masks/val"),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="IoUMetric", iou_metrics=["mIoU"])
test_evaluator = val_evaluator

max_iters = 40
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=max_iters)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="AdamW", lr=1e-3, weight_decay=0.05))
param_scheduler = [dict(type="CosineAnnealingLR", begin=0, end=max_iters, eta_min=1e-5, by_epoch=False)]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(by_epoch=False, interval=max_iters))
log_processor = dict(by_epoch=False)
