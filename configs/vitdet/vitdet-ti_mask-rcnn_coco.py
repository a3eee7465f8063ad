"""ViTDet-Ti from DeiT's weights (arXiv:2012.12877), Mask R-CNN, COCO.

    python tools/train.py configs/vitdet/vitdet-ti_mask-rcnn_coco.py --amp

The recipe of configs/vitdet_coco.py. Put deit_tiny_patch16_224-a1311bcf.pth into data/checkpoints/.
Score: not measured.
"""

_base_ = ["../vitdet_coco.py"]

model = dict(
    backbone=dict(
        arch="tiny",
        init_cfg=dict(
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/deit_tiny_patch16_224-a1311bcf.pth", source="deit"
        ),
    ),
    neck=dict(in_channels=192),
)
