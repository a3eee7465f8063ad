"""A linear layer on a DINOv2 ViT-S, street scenes (CamVid) at 336 x 252: what each way of training is worth.

    python tools/train.py configs/comparison/vits-dinov2_linear_camvid-336.py --finetune lora
    python tools/compare_recipes.py configs/comparison/vits-dinov2_linear_camvid-336.py \
        --finetune linear lora full --images 50 all --out outputs/camvid_recipes

Every way takes 200 steps of 4 images. Measured here on one of two CPU cores, beside other work: mIoU 32.71 (linear, 5
minutes), 49.18 (LoRA, 19 minutes) and 46.20 (full, 30 minutes) on 367 images; 32.15, 44.93 and 45.88 on 50.
"""

_base_ = ["../vitseg/vits-dinov2_linear_camvid.py"]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="Resize", scale=(336, 252), keep_ratio=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(336, 252), keep_ratio=True),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
model = dict(data_preprocessor=dict(size=(252, 336)))
max_iters = 200
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type="PolyLR", eta_min=0.0, power=0.9, begin=20, end=max_iters, by_epoch=False),
]
default_hooks = dict(checkpoint=dict(interval=max_iters))
