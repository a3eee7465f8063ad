"""GFL on a Swin-T from random weights, blood cells at 320 x 240: a comparison of backbones without pre-training.

    python tools/train.py configs/comparison/swin-t_gfl_bccd-240.py

Score: not measured yet.
"""

_base_ = ["vits_gfl_bccd-240.py"]
model = dict(
    backbone=dict(_delete_=True, type="SwinTransformer", out_indices=(1, 2, 3), drop_path_rate=0.1),
    neck=dict(_delete_=True, type="FPN", in_channels=[192, 384, 768], out_channels=128, num_outs=3),
)
