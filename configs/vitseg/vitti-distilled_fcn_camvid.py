"""A light head on a ViT-Ti that learned DINOv2-S's features from photos, street scenes (CamVid) at 336 x 252.

    python tools/train.py configs/distill/vitti_dinov2-s_photos.py
    python tools/train.py configs/vitseg/vitti-distilled_fcn_camvid.py

Score: not measured yet.
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
