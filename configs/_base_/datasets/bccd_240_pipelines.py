# Blood cells at 320 x 240. Variables and no data loaders: so they stand beside a base that has them.
size_240 = (320, 240)
train_pipeline_240 = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", scale=size_240, keep_ratio=True),
    dict(type="RandomFlip", prob=[0.25, 0.25, 0.25], direction=["horizontal", "vertical", "diagonal"]),
    dict(type="PackDetInputs"),
]
test_pipeline_240 = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=size_240, keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(
        type="PackDetInputs",
        meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "instances"),
    ),
]
