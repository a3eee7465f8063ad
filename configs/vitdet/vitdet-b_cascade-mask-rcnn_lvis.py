"""ViTDet-B, Cascade Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-b_cascade-mask-rcnn_lvis.py --amp

Score as published: box AP 43.0, mask AP 38.9. Not measured here. Needs the
package `lvis`. Weights as for configs/vitdet_coco.py; the published detector is detectron2's model_final_df306f.pkl.
"""

_base_ = ["vitdet-b_mask-rcnn_lvis.py"]

# Three stages of box heads at IoU 0.5, 0.6 and 0.7 with class-agnostic boxes, everything else as in its base.
norm_cfg = dict(type="vitdense.LayerNorm2d", eps=1e-6)
ious = (0.5, 0.6, 0.7)
box_stds = ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [1 / 30, 1 / 30, 1 / 15, 1 / 15])
loss_cls = dict(
    type="vitdense.FederatedLoss",
    num_classes=1203,
    ann_file="{{$VITDENSE_DATA:data}}/coco/annotations/lvis_v1_train.json",
)
box_heads = [
    dict(
        type="Shared4Conv1FCBBoxHead",
        conv_out_channels=256,
        in_channels=256,
        fc_out_channels=1024,
        roi_feat_size=7,
        num_classes=1203,
        norm_cfg=norm_cfg,
        bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=stds),
        reg_class_agnostic=True,
        loss_cls=loss_cls,
        loss_bbox=dict(type="L1Loss", loss_weight=1.0),
    )
    for stds in box_stds
]
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
model = dict(
    type="CascadeRCNN",
    roi_head=dict(type="vitdense.CascadeRoIHead", num_stages=3, stage_loss_weights=[1, 1, 1], bbox_head=box_heads),
    train_cfg=dict(rcnn=box_training),
)
