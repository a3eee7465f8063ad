"""A linear layer on a frozen DINOv2 ViT-S, street scenes (CamVid).

    python tools/train.py configs/vitseg/vits-dinov2_linear_camvid.py

One 1 x 1 convolution on the last map. Score: not measured yet.
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/camvid_segmentation.py",
    "../_base_/models/dinov2_small.py",
]

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(364, 490), pad_val=0, seg_pad_val=255),
    backbone=dict(frozen_stages=12),
    decode_head=dict(
        type="FCNHead",
        in_channels=384,
        in_index=0,
        channels=384,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=None,
        align_corners=False,
        loss_decode=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="whole"),
)

max_iters = 400
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters, val_interval=max_iters)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-3, weight_decay=0.01),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=max_iters))
