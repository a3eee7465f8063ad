# 156 images of COCO 2017 at 512 x 512, train2017 and val2017 together: enough to train detectors for parity tests, far
# too few to claim an accuracy. No augmentation, so that the features of a frozen backbone can be kept.
dataset_type = "CocoDataset"
data_root = "{{$VITDENSE_DATA:data}}/coco_mini/"
image_size = (512, 512)

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="Resize", scale=image_size, keep_ratio=True),
    dict(type="FilterAnnotations", min_gt_bbox_wh=(1, 1)),
    dict(type="PackDetInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=image_size, keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="PackDetInputs", meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
train_parts = [
    dict(
        type=dataset_type,
        data_root=data_root,
        ann_file=f"annotations/instances_{part}.json",
        data_prefix=dict(img=f"{part}/"),
        filter_cfg=dict(filter_empty_gt=True, min_size=32),
        pipeline=train_pipeline,
    )
    for part in ("train2017", "val2017")
]
test_parts = [
    dict(
        type=dataset_type,
        data_root=data_root,
        ann_file=f"annotations/instances_{part}.json",
        data_prefix=dict(img=f"{part}/"),
        test_mode=True,
        pipeline=test_pipeline,
    )
    for part in ("train2017", "val2017")
]
train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(type="ConcatDataset", datasets=train_parts),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=1,
    persistent_workers=True,
    drop_last=False,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(type="ConcatDataset", datasets=test_parts),
)
val_dataloader = test_dataloader
val_evaluator = dict(type="vitdense.OperatingPointMetric", score_thr=0.3, iou_thr=0.5)
test_evaluator = val_evaluator
