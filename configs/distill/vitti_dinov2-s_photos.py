"""A ViT-Ti that learns the features of a DINOv2 ViT-S from photos without labels (AM-RADIO's loss, arXiv:2312.06709).

    python tools/train.py configs/distill/vitti_dinov2-s_photos.py

547 photos (the training images of CamVid, coco_semantic and coco_mini), as crops of 224 x 224. The checkpoint is a
pre-trained ViT for init_cfg=dict(type="vitdense.Pretrained", checkpoint=...). Measured here on one of two CPU cores in
65 minutes, beside other work: the loss falls from 0.94 to 0.26. What it is worth is measured by
vitseg/vitti-distilled_fcn_camvid.py.
"""

_base_ = ["../_base_/seg_runtime.py", "../_base_/models/dinov2_small.py"]

crop_size = (224, 224)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResize", scale=(480, 360), ratio_range=(0.7, 1.5), keep_ratio=True),
    dict(type="RandomCrop", crop_size=crop_size),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
photos = [
    dict(
        type="BaseSegDataset",
        data_root="{{$VITDENSE_DATA:data}}/",
        data_prefix=dict(img_path=folder),
        pipeline=train_pipeline,
    )
    for folder in ("camvid/images/train", "coco_semantic/images/train2017", "coco_mini/train2017")
]
train_dataloader = dict(
    batch_size=16,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(type="ConcatDataset", datasets=photos),
)
model = dict(
    type="vitdense.FeatureDistiller",
    data_preprocessor=dict(type="SegDataPreProcessor", size=crop_size),
    teacher={{_base_.model.backbone}},
    backbone=dict(arch="tiny", layer_scale_init=None, init_cfg=None),
)
max_iters = 700
train_cfg = dict(type="IterBasedTrainLoop", max_iters=max_iters)
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.98), weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0),
    clip_grad=dict(max_norm=3.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=60),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=False, begin=60, end=max_iters),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=100))
