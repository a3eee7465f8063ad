"""GFL on a ViT-S from random weights, blood cells at 320 x 240: a comparison of backbones without pre-training.

    python tools/train.py configs/comparison/vits_gfl_bccd-240.py

The other backbones of this folder train under the same schedule. Score: not measured yet.
"""

_base_ = ["../vitdet/vits-dinov2_gfl_bccd.py", "../_base_/datasets/bccd_240_pipelines.py"]
train_dataloader = dict(dataset=dict(pipeline={{_base_.train_pipeline_240}}))
val_dataloader = dict(dataset=dict(pipeline={{_base_.test_pipeline_240}}))
test_dataloader = val_dataloader

model = dict(
    backbone=dict(frozen_stages=-1, out_indices=(-1,), drop_path_rate=0.1, init_cfg=None),
    neck=dict(in_channels=384, in_index=-1),
)
max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
custom_hooks = []
