"""ViTDet-B, Cascade Mask R-CNN, COCO (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py --amp

Score as published: box AP 54.0, mask AP 46.7. Not measured here. Weights and data as for configs/vitdet_coco.py; the
published detector is detectron2's model_final_435fa9.pkl.
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_instance_lsj.py",
    "../_base_/models/cascade-mask-rcnn_vitdet.py",
    "../_base_/schedules/vitdet_100e.py",
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
