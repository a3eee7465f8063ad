"""A light head on a DINOv2 ViT-S whose last four blocks are fine-tuned, street scenes (CamVid).

    python tools/train.py configs/vitseg/vits-dinov2_fcn_camvid.py

Score: not measured yet.
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/camvid_segmentation.py",
    "../_base_/models/dinov2_small.py",
]

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(364, 490), pad_val=0, seg_pad_val=255),
    backbone=dict(out_indices=(5, 8, 11), frozen_stages=8, drop_path_rate=0.1),
    decode_head=dict(
        type="FCNHead",
        in_channels=[384, 384, 384],
        in_index=[0, 1, 2],
        input_transform="resize_concat",
        channels=192,
        num_convs=1,
        kernel_size=3,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=11,
        norm_cfg=dict(type="BN"),
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
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(decay_rate=0.8, norm_decay_mult=0.0, custom_keys=dict(backbone=dict(lr_mult=0.1))),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=max_iters))
