"""Faster R-CNN (arXiv:1506.01497) on a frozen DINOv2 ViT-S and a simple feature pyramid, for blood cells.

    python tools/train.py configs/vitdet/vits-dinov2_faster-rcnn_bccd.py

256 proposals at test time. Trains on the 292 images of trainval and is scored on the 72 of test. The pyramid takes
three maps of the backbone, whose features are computed once. Measured here on one of two CPU cores in 69 minutes,
beside other work: AP50 90.5, AP 57.1.
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/bccd_detection.py",
    "../_base_/models/dinov2_small.py",
    "../_base_/schedules/frozen_12e.py",
]

model = dict(
    type="FasterRCNN",
    data_preprocessor=dict(type="DetDataPreprocessor", pad_size_divisor=32),
    # Patch 14 resampled to 16, so that the strides are 8, 16, 32 and 64.
    backbone=dict(patch_size=16, pretrain_img_size=592, frozen_stages=12, out_indices=(3, 7, 11)),
    neck=dict(
        type="vitdense.SimpleFeaturePyramid",
        in_channels=[384, 384, 384],
        in_index=[0, 1, 2],
        out_channels=128,
        scales=(2, 1, 0.5),
        num_outs=4,
    ),
    rpn_head=dict(
        type="RPNHead",
        in_channels=128,
        feat_channels=128,
        # Side of the anchors: 32, 64, 128 and 256 pixels.
        anchor_generator=dict(type="AnchorGenerator", scales=[4], ratios=[0.5, 1.0, 2.0], strides=[8, 16, 32, 64]),
        bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=[1.0] * 4),
        loss_cls=dict(type="CrossEntropyLoss", use_sigmoid=True, loss_weight=1.0),
        loss_bbox=dict(type="L1Loss", loss_weight=1.0),
    ),
    roi_head=dict(
        type="StandardRoIHead",
        bbox_roi_extractor=dict(
            type="SingleRoIExtractor",
            # MMDetection's default of 0 adapts the samples to each box and has no static form; 2 can be exported.
            roi_layer=dict(type="RoIAlign", output_size=7, sampling_ratio=2),
            out_channels=128,
            featmap_strides=[8, 16, 32],
        ),
        bbox_head=dict(
            type="Shared2FCBBoxHead",
            in_channels=128,
            fc_out_channels=512,
            roi_feat_size=7,
            num_classes=3,
            bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=[0.1, 0.1, 0.2, 0.2]),
            reg_class_agnostic=True,
            loss_cls=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
            loss_bbox=dict(type="L1Loss", loss_weight=1.0),
        ),
    ),
    train_cfg=dict(
        rpn=dict(
            assigner=dict(
                type="MaxIoUAssigner",
                pos_iou_thr=0.7,
                neg_iou_thr=0.3,
                min_pos_iou=0.3,
                match_low_quality=True,
                ignore_iof_thr=-1,
            ),
            sampler=dict(type="RandomSampler", num=256, pos_fraction=0.5, neg_pos_ub=-1, add_gt_as_proposals=False),
            allowed_border=-1,
            pos_weight=-1,
            debug=False,
        ),
        rpn_proposal=dict(nms_pre=1000, max_per_img=500, nms=dict(type="nms", iou_threshold=0.7), min_bbox_size=0),
        rcnn=dict(
            assigner=dict(
                type="MaxIoUAssigner",
                pos_iou_thr=0.5,
                neg_iou_thr=0.5,
                min_pos_iou=0.5,
                match_low_quality=False,
                ignore_iof_thr=-1,
            ),
            sampler=dict(type="RandomSampler", num=256, pos_fraction=0.25, neg_pos_ub=-1, add_gt_as_proposals=True),
            pos_weight=-1,
            debug=False,
        ),
    ),
    test_cfg=dict(
        rpn=dict(nms_pre=1000, max_per_img=256, nms=dict(type="nms", iou_threshold=0.7), min_bbox_size=0),
        rcnn=dict(score_thr=0.05, nms=dict(type="nms", iou_threshold=0.5), max_per_img=100),
    ),
)
