# 100 + 100 images of COCO 2017 with index masks of the panoptic categories, grouped into 12 everyday classes.
# Annotations: CC BY 4.0 (COCO consortium); each photo under the Flickr licence that its record names.
dataset_type = "vitdense.GroupedMaskDataset"
data_root = "{{$VITDENSE_DATA:data}}/coco_semantic/"
# Stretched to 32 x 32 patches of 14 pixels: a grid that windows of 8 or 16 divide.
image_size = (448, 448)
metainfo = dict(
    classes=(
        "person",
        "animal",
        "vehicle",
        "food",
        "plant",
        "sky",
        "water",
        "ground",
        "building",
        "wall",
        "indoor",
        "object",
    ),  # fmt: skip
    palette=[
        (230, 57, 70),
        (255, 159, 28),
        (67, 97, 238),
        (255, 214, 10),
        (56, 160, 70),
        (142, 202, 230),
        (0, 119, 182),
        (176, 137, 104),
        (141, 90, 153),
        (205, 190, 175),
        (255, 112, 166),
        (90, 90, 100),
    ],
)

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    # Stretched to a square as at test time, up to 1.8 times as large, and a crop of it.
    dict(type="RandomResize", scale=image_size, ratio_range=(1.0, 1.8), keep_ratio=False),
    dict(type="RandomCrop", crop_size=image_size, cat_max_ratio=0.9),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=image_size, keep_ratio=False),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        grouping_file="everyday.json",
        data_prefix=dict(img_path="images/train2017", seg_map_path="masks/train2017"),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        grouping_file="everyday.json",
        data_prefix=dict(img_path="images/val2017", seg_map_path="masks/val2017"),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
val_dataloader = test_dataloader
val_evaluator = dict(type="IoUMetric", iou_metrics=["mIoU"])
test_evaluator = val_evaluator
