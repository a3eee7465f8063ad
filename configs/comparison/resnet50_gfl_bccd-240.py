"""GFL on a ResNet-50 from random weights, blood cells at 320 x 240: a comparison of backbones without pre-training.

    python tools/train.py configs/comparison/resnet50_gfl_bccd-240.py

Score: not measured yet.
"""

_base_ = ["vits_gfl_bccd-240.py"]
model = dict(
    backbone=dict(
        _delete_=True, type="ResNet", depth=50, out_indices=(1, 2, 3), norm_cfg=dict(type="BN"), norm_eval=False
    ),
    neck=dict(_delete_=True, type="FPN", in_channels=[512, 1024, 2048], out_channels=128, num_outs=3),
)
