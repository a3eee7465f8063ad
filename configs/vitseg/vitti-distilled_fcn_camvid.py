"""A light head on a ViT-Ti that learned DINOv2-S's features from photos, street scenes (CamVid) at 336 x 252.

    python tools/train.py configs/distill/vitti_dinov2-s_photos.py
    python tools/train.py configs/vitseg/vitti-distilled_fcn_camvid.py

Measured here on one of two CPU cores in 31 minutes, beside other work: mIoU 27.19, pixel accuracy 70.92. No gain over
random weights (vitti_fcn_camvid.py, 27.49): 700 iterations of distillation are too few to be worth more than the first
200 of 400 steps. With the rates of --finetune full 24.31.
"""

_base_ = ["vitti_fcn_camvid.py"]
model = dict(
    backbone=dict(
        init_cfg=dict(
            _delete_=True,
            type="vitdense.Pretrained",
            checkpoint="work_dirs/vitti_dinov2-s_photos/iter_700.pth",
        )
    )
)
