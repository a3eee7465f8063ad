"""The edge Mask R-CNN with trained heads on a frozen DINOv2 ViT-S, on 156 images of COCO.

    python tools/train.py configs/edge/vits_mask-rcnn_coco-mini.py

A model with real detections for tests of export, quantization and runtimes: it is scored on the images it was trained
on and claims no accuracy. Measured here on one of two CPU cores in 79 minutes, beside other work: 649 of its 1,170
boxes with a score of 0.3 or more match one of the 1,326 objects (IoU 0.5).
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_mini_512.py",
    "../_base_/models/edge_mask-rcnn.py",
    "../_base_/schedules/frozen_40e.py",
]
model = dict(backbone=dict(frozen_stages=12, drop_path_rate=0.0))
default_hooks = dict(logger=dict(interval=13), checkpoint=dict(interval=10))
