"""ViTDet-B, Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-b_mask-rcnn_lvis.py --amp

Score as published: box AP 40.2, mask AP 38.2. Not measured here. Needs the
package `lvis`. Weights as for configs/vitdet_coco.py; the published detector is detectron2's model_final_5251c5.pkl.
"""

_base_ = ["../vitdet_coco.py"]

# Rare classes are repeated as MMDetection does it, in whole numbers; detectron2 rounds the repetitions at random.
# LVIS v1 has the images of COCO: data/coco/annotations/lvis_v1_{train,val}.json beside data/coco/train2017 and val2017.
dataset_type = "LVISV1Dataset"
data_root = "{{$VITDENSE_DATA:data}}/coco/"
train_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type="ClassBalancedDataset",
        oversample_thr=1e-3,
        dataset=dict(
            type=dataset_type,
            data_root=data_root,
            ann_file="annotations/lvis_v1_train.json",
            data_prefix=dict(img=""),
            filter_cfg=dict(filter_empty_gt=True, min_size=32),
            pipeline={{_base_.train_pipeline}},
        ),
    )
)
val_dataloader = dict(
    dataset=dict(type=dataset_type, ann_file="annotations/lvis_v1_val.json", data_prefix=dict(img=""))
)
test_dataloader = val_dataloader
val_evaluator = dict(
    _delete_=True,
    type="vitdense.LVISMetric",
    ann_file=data_root + "annotations/lvis_v1_val.json",
    metric=["bbox", "segm"],
)
test_evaluator = val_evaluator

loss_cls = dict(
    type="vitdense.FederatedLoss",
    num_classes=1203,
    ann_file="{{$VITDENSE_DATA:data}}/coco/annotations/lvis_v1_train.json",
)
model = dict(
    roi_head=dict(
        bbox_head=dict(num_classes=1203, loss_cls=dict(_delete_=True, **loss_cls)), mask_head=dict(num_classes=1203)
    ),
    test_cfg=dict(rcnn=dict(score_thr=0.02, max_per_img=300)),
)
# 100 epochs = 156250 iterations of 64 images; the rate falls at 138889 and 150463.
max_iters = 156250
train_cfg = dict(max_iters=max_iters, val_interval=30000)
optim_wrapper = dict(optimizer=dict(lr=2e-4))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(type="MultiStepLR", begin=0, end=max_iters, by_epoch=False, milestones=[138889, 150463], gamma=0.1),
]
