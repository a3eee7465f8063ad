"""The edge RTMDet-Ins with trained heads on a frozen DINOv2 ViT-S, on 156 images of COCO.

    python tools/train.py configs/edge/vits_rtmdet-ins_coco-mini.py

A model with real detections for tests of export, quantization and runtimes: it is scored on the images it was trained
on and claims no accuracy. Measured here on one of two CPU cores in 110 minutes, beside other work: 541 of its 1,721
boxes with a score of 0.3 or more match one of the 1,326 objects (IoU 0.5).
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_mini_512.py",
    "../_base_/models/edge_rtmdet-ins.py",
    "../_base_/schedules/frozen_40e.py",
]
model = dict(backbone=dict(frozen_stages=12, drop_path_rate=0.0))
max_epochs = 60
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
default_hooks = dict(logger=dict(interval=13), checkpoint=dict(interval=5))
# The levels share the convolutions of the head.
optim_wrapper = dict(paramwise_cfg=dict(bypass_duplicate=True))
