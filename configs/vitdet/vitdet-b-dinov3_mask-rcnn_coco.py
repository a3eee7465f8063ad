"""ViTDet-B from DINOv3's weights (arXiv:2508.10104), Mask R-CNN, COCO.

    python tools/train.py configs/vitdet/vitdet-b-dinov3_mask-rcnn_coco.py --amp

The recipe of configs/vitdet_coco.py with rotary positions, registers and LayerScale instead of relative positions. Put
dinov3_vitb16_pretrain_lvd1689m.pth into data/checkpoints/. Score: not measured.
"""

_base_ = ["../vitdet_coco.py"]

model = dict(
    backbone=dict(
        use_rel_pos=False,
        pos_embed="rotary",
        with_cls_token=True,
        num_register_tokens=4,
        layer_scale_init=1.0,
        final_norm=True,
        norm_eps=1e-5,
        init_cfg=dict(
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/dinov3_vitb16_pretrain_lvd1689m.pth", source="dinov3"
        ),
    )
)
