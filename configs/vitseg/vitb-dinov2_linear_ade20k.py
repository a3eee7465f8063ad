"""A linear layer on a frozen DINOv2 ViT-B/14 (arXiv:2304.07193), ADE20K.

    python tools/train.py configs/vitseg/vitb-dinov2_linear_ade20k.py

Score as published (DINOv2, table 10, linear, by its own schedule): mIoU 47.3. Not measured here. Put
dinov2_vitb14_pretrain.pth into data/checkpoints/.
"""

_base_ = [
    "../_base_/seg_runtime.py",
    "../_base_/datasets/ade20k_512.py",
    "../_base_/models/dinov2_small.py",
    "../_base_/schedules/seg_40k.py",
]

model = dict(
    type="EncoderDecoder",
    data_preprocessor=dict(type="SegDataPreProcessor", size=(518, 518), pad_val=0, seg_pad_val=255),
    backbone=dict(
        arch="base",
        frozen_stages=12,
        interpolate_offset=0.1,
        init_cfg=dict(checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/dinov2_vitb14_pretrain.pth", source="dinov2"),
    ),
    decode_head=dict(
        type="FCNHead",
        in_channels=768,
        in_index=0,
        channels=768,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=150,
        norm_cfg=None,
        align_corners=False,
        loss_decode=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode="slide", crop_size=(518, 518), stride=(345, 345)),
)
