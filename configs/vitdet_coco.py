"""ViTDet-B, Mask R-CNN, COCO: the published recipe (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet_coco.py --amp

Cost as published: 100 epochs (184,375 iterations of 64 images at 1024 x 1024), 64 GPUs. Score as published, with MAE
weights and relative position: box AP 51.6, mask AP 45.9. Not measured here.

The backbone starts from MAE's weights: put
https://dl.fbaipublicfiles.com/mae/pretrain/mae_pretrain_vit_base.pth into data/checkpoints/ (or start at random, with
--cfg-options model.backbone.init_cfg=None).

The published detector itself needs no training. Download detectron2's model_final_61ccd1.pkl (projects/ViTDet, Mask
R-CNN, ViTDet-B), convert and test it:

    python tools/convert_checkpoint.py model_final_61ccd1.pkl vitdet-b.pth --config configs/vitdet_coco.py
    python tools/test.py configs/vitdet_coco.py vitdet-b.pth

On other data, for instance a COCO subset under data/coco_mini:

    python tools/train.py configs/vitdet_coco.py --cfg-options \
        train_dataloader.dataset.data_root=data/coco_mini/ val_dataloader.dataset.data_root=data/coco_mini/ \
        val_evaluator.ann_file=data/coco_mini/annotations/instances_val2017.json
"""

_base_ = [
    "_base_/det_runtime.py",
    "_base_/datasets/coco_instance_lsj.py",
    "_base_/models/mask-rcnn_vitdet.py",
    "_base_/schedules/vitdet_100e.py",
]

model = dict(
    backbone=dict(
        arch="base",
        patch_size=16,
        pretrain_img_size=224,
        window_size=14,
        global_attn_indexes=(2, 5, 8, 11),
        drop_path_rate=0.1,
        use_rel_pos=True,
        img_size=1024,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/mae_pretrain_vit_base.pth",
            source="mae",
        ),
    )
)
default_hooks = dict(checkpoint=dict(by_epoch=False, interval=5000))
log_processor = dict(by_epoch=False)
