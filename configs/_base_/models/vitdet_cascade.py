# ViTDet's cascade: three stages of box heads at IoU 0.5, 0.6 and 0.7 with class-agnostic boxes, everything else as in
# the Mask R-CNN. Variables and no `model`: so they stand beside a base that has one.
ious = (0.5, 0.6, 0.7)
box_stds = ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [1 / 30, 1 / 30, 1 / 15, 1 / 15])
softmax_loss = dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0)
federated_loss = dict(
    type="vitdense.FederatedLoss",
    num_classes=1203,
    ann_file="{{$VITDENSE_DATA:data}}/coco/annotations/lvis_v1_train.json",
)
box_training = [
    dict(
        assigner=dict(
            type="MaxIoUAssigner",
            pos_iou_thr=iou,
            neg_iou_thr=iou,
            min_pos_iou=iou,
            match_low_quality=False,
            ignore_iof_thr=-1,
        ),
        sampler=dict(type="RandomSampler", num=512, pos_fraction=0.25, neg_pos_ub=-1, add_gt_as_proposals=True),
        mask_size=28,
        pos_weight=-1,
        debug=False,
    )
    for iou in ious
]
cascade_coco, cascade_lvis = (
    dict(
        type="CascadeRCNN",
        roi_head=dict(
            type="vitdense.CascadeRoIHead",
            num_stages=3,
            stage_loss_weights=[1, 1, 1],
            bbox_head=[
                dict(
                    type="Shared4Conv1FCBBoxHead",
                    conv_out_channels=256,
                    in_channels=256,
                    fc_out_channels=1024,
                    roi_feat_size=7,
                    num_classes=num_classes,
                    norm_cfg=dict(type="vitdense.LayerNorm2d", eps=1e-6),
                    bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=stds),
                    reg_class_agnostic=True,
                    loss_cls=loss_cls,
                    loss_bbox=dict(type="L1Loss", loss_weight=1.0),
                )
                for stds in box_stds
            ],
        ),
        train_cfg=dict(rcnn=box_training),
    )
    for num_classes, loss_cls in ((80, softmax_loss), (1203, federated_loss))
)
