"""ViT-S with a light segmentation head for edge devices, 512 x 512, ADE20K.

    python tools/train.py configs/edge/vits_fcn_ade20k-512.py

Windowed backbone, one map, two depthwise-separable convolutions to 128 channels, a linear classifier: at most 1.15
times the backbone's FLOPs. Score: not measured (no ADE20K here).
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/ade20k_512.py",
    "../_base_/models/edge_vits.py",
    "../_base_/schedules/seg_40k.py",
]

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(512, 512), pad_val=0, seg_pad_val=255),
    backbone=dict(drop_path_rate=0.1),
    decode_head=dict(
        type="DepthwiseSeparableFCNHead",
        in_channels=384,
        in_index=0,
        channels=128,
        num_convs=2,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type="BN"),
        align_corners=False,
        loss_decode=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="slide", crop_size=(512, 512), stride=(341, 341)),
)
