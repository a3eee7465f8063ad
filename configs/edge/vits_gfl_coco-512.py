"""ViT-S with a one-stage detector (GFL, arXiv:2006.04388) for edge devices, 512 x 512, COCO.

    python tools/train.py configs/edge/vits_gfl_coco-512.py

Windowed backbone, three levels of 96 channels, two convolutions in each branch: at most 1.25 times the backbone's
FLOPs. Score: not measured (no COCO here).
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_instance_512.py",
    "../_base_/models/edge_vits.py",
    "../_base_/schedules/edge_36e.py",
]

model = dict(
    type="GFL",
    data_preprocessor=dict(type="DetDataPreprocessor", pad_size_divisor=512, pad_mask=False),
    backbone=dict(drop_path_rate=0.1),
    neck=dict(
        type="vitdense.SimpleFeaturePyramid",
        in_channels=384,
        out_channels=96,
        scales=(2, 1, 0.5),
        num_outs=3,
        norm_cfg=dict(type="BN"),  # folded into the convolution on the device, unlike a LayerNorm
    ),
    bbox_head=dict(
        type="GFLHead",
        num_classes=80,
        in_channels=96,
        feat_channels=96,
        stacked_convs=2,
        norm_cfg=dict(type="BN"),
        anchor_generator=dict(
            type="AnchorGenerator", ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8, 16, 32]
        ),
        loss_cls=dict(type="QualityFocalLoss", use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_dfl=dict(type="DistributionFocalLoss", loss_weight=0.25),
        reg_max=16,
        loss_bbox=dict(type="GIoULoss", loss_weight=2.0),
    ),
    train_cfg=dict(assigner=dict(type="ATSSAssigner", topk=9), allowed_border=-1, pos_weight=-1, debug=False),
    test_cfg=dict(
        nms_pre=1000, min_bbox_size=0, score_thr=0.05, nms=dict(type="nms", iou_threshold=0.6), max_per_img=100
    ),
)
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
