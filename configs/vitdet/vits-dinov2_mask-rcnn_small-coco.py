"""Mask R-CNN on a DINOv2 ViT-S for a few hundred images with masks in COCO's format: LoRA, jitter, copy-paste.

    python tools/train.py configs/vitdet/vits-dinov2_mask-rcnn_small-coco.py

Simple copy-paste with large-scale jitter (arXiv:2012.07177); training ends when the mask AP of the validation data has
not risen by 0.1 points for five epochs, and the best checkpoint is kept. Set data_root, annotation files, num_classes
and the classes to yours. Score: not measured (the default data, coco_mini, are for trying it out).
"""

_base_ = ["../edge/vits_mask-rcnn_coco-512.py"]

data_root = "{{$VITDENSE_DATA:data}}/coco_mini/"
image_size = (512, 512)
# Pasting needs the objects of another image, so that the pipeline has two parts: what each image goes through, and what
# the mixed one does.
image_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="RandomResize", scale=image_size, ratio_range=(0.5, 1.5), keep_ratio=True),
    dict(type="RandomCrop", crop_type="absolute", crop_size=image_size, recompute_bbox=True, allow_negative_crop=True),
    dict(type="FilterAnnotations", min_gt_bbox_wh=(8, 8)),
    dict(type="Pad", size=image_size),
]
mixed_pipeline = [
    dict(type="CopyPaste", max_num_pasted=20),
    dict(type="FilterAnnotations", min_gt_bbox_wh=(8, 8)),
    dict(type="PackDetInputs"),
]
train_dataloader = dict(
    _delete_=True,
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(
        type="MultiImageMixDataset",
        dataset=dict(
            type="CocoDataset",
            data_root=data_root,
            ann_file="annotations/instances_train2017.json",
            data_prefix=dict(img="train2017/"),
            filter_cfg=dict(filter_empty_gt=True, min_size=32),
            pipeline=image_pipeline,
        ),
        pipeline=mixed_pipeline,
    ),
)
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + "annotations/instances_val2017.json")
test_evaluator = val_evaluator

model = dict(backbone=dict(drop_path_rate=0.0, lora=dict(rank=8)))
max_epochs = 60
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0),
    clip_grad=dict(max_norm=10.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(save_best="coco/segm_mAP"))
custom_hooks = [dict(type="EarlyStoppingHook", monitor="coco/segm_mAP", rule="greater", min_delta=1e-3, patience=5)]
