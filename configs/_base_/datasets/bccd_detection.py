# BCCD blood cells (https://github.com/Shenggan/BCCD_Dataset, MIT): 364 images of 640 x 480, 3 classes, VOC layout.
dataset_type = "XMLDataset"
data_root = "{{$VITDENSE_DATA:data}}/bccd/"
metainfo = dict(classes=("RBC", "WBC", "Platelets"), palette=[(220, 60, 60), (80, 90, 220), (240, 180, 40)])

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", scale=(640, 480), keep_ratio=True),
    # Cells have no up or down. Four variants of each image are few enough to keep the features of a frozen backbone.
    dict(type="RandomFlip", prob=[0.25, 0.25, 0.25], direction=["horizontal", "vertical", "diagonal"]),
    dict(type="PackDetInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(640, 480), keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(
        type="PackDetInputs",
        # CocoMetric without an annotation file takes the ground truth ('instances') from here.
        meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "instances"),
    ),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file="ImageSets/Main/trainval.txt",
        data_prefix=dict(sub_data_root=""),
        metainfo=metainfo,
        # Two boxes of the data set have no area; they must not become targets.
        filter_cfg=dict(filter_empty_gt=True, min_size=32, bbox_min_size=1),
        pipeline=train_pipeline,
    ),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    drop_last=False,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file="ImageSets/Main/test.txt",
        data_prefix=dict(sub_data_root=""),
        metainfo=metainfo,
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
val_dataloader = test_dataloader
val_evaluator = dict(type="CocoMetric", metric="bbox", format_only=False)
test_evaluator = val_evaluator
