# CamVid (http://mi.eng.cam.ac.uk/research/projects/VideoRec/CamVid) in SegNet's selection: 367 street scenes of 480 x
# 360 to train, 171 of another video to test, 11 classes, 11 = void. For non-commercial research: weights do not ship.
dataset_type = "vitdense.IndexMaskDataset"
data_root = "{{$VITDENSE_DATA:data}}/camvid/"
image_size = (480, 360)
metainfo = dict(
    classes=(
        "sky",
        "building",
        "pole",
        "road",
        "pavement",
        "tree",
        "sign",
        "fence",
        "car",
        "pedestrian",
        "bicyclist",
    ),  # fmt: skip
    palette=[
        (128, 128, 128),
        (128, 0, 0),
        (192, 192, 128),
        (128, 64, 128),
        (60, 40, 222),
        (128, 128, 0),
        (192, 128, 128),
        (64, 64, 128),
        (64, 0, 128),
        (64, 64, 0),
        (0, 128, 192),
    ],
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomResize", scale=image_size, ratio_range=(0.75, 2.0), keep_ratio=True),
    dict(type="RandomCrop", crop_size=(360, 480), cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=image_size, keep_ratio=True),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ignored_ids=(11,),
        data_prefix=dict(img_path="images/train", seg_map_path="labels/train"),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ignored_ids=(11,),
        data_prefix=dict(img_path="images/test", seg_map_path="labels/test"),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="IoUMetric", iou_metrics=["mIoU"])
test_evaluator = val_evaluator
