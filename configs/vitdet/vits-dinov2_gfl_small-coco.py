"""GFL on a frozen DINOv2 ViT-S, for a few hundred images of yours with boxes in COCO's format; no masks needed.

    python tools/train.py configs/vitdet/vits-dinov2_gfl_small-coco.py --cfg-options data_root=/path/to/data/

The detector of vits-dinov2_gfl_bccd.py (AP 58.3 on blood cells) on other data. Set data_root, the annotation files and
the classes to yours; the number of classes follows. Score: not measured (the default data, coco_mini, are for trying
it out).
"""

_base_ = ["vits-dinov2_gfl_bccd.py"]

data_root = "{{$VITDENSE_DATA:data}}/coco_mini/"
train_ann_file = "annotations/instances_train2017.json"
val_ann_file = "annotations/instances_val2017.json"
metainfo = dict(classes=("person", "car", "chair", "cup", "dog"))  # names of the annotation file; others are left out

train_dataloader = dict(
    dataset=dict(
        type="CocoDataset",
        data_root=data_root,
        ann_file=train_ann_file,
        data_prefix=dict(_delete_=True, img="train2017/"),
        metainfo=metainfo,
    )
)
val_dataloader = dict(
    dataset=dict(
        type="CocoDataset",
        data_root=data_root,
        ann_file=val_ann_file,
        data_prefix=dict(_delete_=True, img="val2017/"),
        metainfo=metainfo,
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + val_ann_file)
test_evaluator = val_evaluator
model = dict(bbox_head=dict(num_classes=len(metainfo["classes"])))
