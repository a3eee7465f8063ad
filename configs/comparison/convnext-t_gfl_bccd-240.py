"""GFL on transformers' ConvNeXt-T from random weights, blood cells at 320 x 240: backbones without pre-training.

    python tools/train.py configs/comparison/convnext-t_gfl_bccd-240.py

Score: not measured yet.
"""

_base_ = ["vits_gfl_bccd-240.py"]
model = dict(
    backbone=dict(
        _delete_=True,
        type="vitdense.TransformersBackbone",
        model_type="convnext",
        config=dict(depths=[3, 3, 9, 3], hidden_sizes=[96, 192, 384, 768], drop_path_rate=0.1),
        out_indices=(2, 3, 4),
    ),
    neck=dict(_delete_=True, type="FPN", in_channels=[192, 384, 768], out_channels=128, num_outs=3),
)
