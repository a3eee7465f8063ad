"""ViT-Ti with a one-stage detector (GFL, arXiv:2006.04388) for edge devices, 512 x 512, COCO.

    python tools/train.py configs/edge/vitti_gfl_coco-512.py

As vits_gfl_coco-512.py with 64 channels behind the backbone. Starts from DeiT-Ti (arXiv:2012.12877): put
deit_tiny_patch16_224-a1311bcf.pth into data/checkpoints/. Score: not measured (no COCO here).
"""

_base_ = ["vits_gfl_coco-512.py"]

model = dict(
    backbone=dict(
        arch="tiny",
        pretrain_img_size=224,
        with_cls_token=True,
        layer_scale_init=None,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/deit_tiny_patch16_224-a1311bcf.pth",
            source="deit",
        ),
    ),
    neck=dict(in_channels=192, out_channels=64),
    bbox_head=dict(in_channels=64, feat_channels=64),
)
