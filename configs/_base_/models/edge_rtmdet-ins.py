# RTMDet-Ins (arXiv:2212.07784) on the windowed ViT-S of edge_vits.py: three levels of 96 channels.
_base_ = ["edge_vits.py"]

model = dict(
    type="RTMDet",
    data_preprocessor=dict(type="DetDataPreprocessor", pad_size_divisor=512, pad_mask=True, batch_augments=None),
    backbone=dict(drop_path_rate=0.1),
    neck=dict(
        type="vitdense.SimpleFeaturePyramid",
        in_channels=384,
        out_channels=96,
        scales=(2, 1, 0.5),
        num_outs=3,
        norm_cfg=dict(type="BN"),
    ),
    bbox_head=dict(
        type="RTMDetInsSepBNHead",
        num_classes=80,
        in_channels=96,
        feat_channels=96,
        stacked_convs=2,
        share_conv=True,
        pred_kernel_size=1,
        act_cfg=dict(type="SiLU", inplace=True),
        norm_cfg=dict(type="BN"),
        anchor_generator=dict(type="MlvlPointGenerator", offset=0, strides=[8, 16, 32]),
        bbox_coder=dict(type="DistancePointBBoxCoder"),
        loss_cls=dict(type="QualityFocalLoss", use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_bbox=dict(type="GIoULoss", loss_weight=2.0),
        loss_mask=dict(type="DiceLoss", loss_weight=2.0, eps=5e-6, reduction="mean"),
    ),
    train_cfg=dict(
        assigner=dict(type="DynamicSoftLabelAssigner", topk=13), allowed_border=-1, pos_weight=-1, debug=False
    ),
    test_cfg=dict(
        nms_pre=1000,
        min_bbox_size=0,
        score_thr=0.05,
        nms=dict(type="nms", iou_threshold=0.6),
        max_per_img=100,
        mask_thr_binary=0.5,
    ),
)
