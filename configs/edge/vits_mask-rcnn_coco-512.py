"""ViT-S with a two-stage detector (Mask R-CNN) for edge devices, 512 x 512, COCO.

    python tools/train.py configs/edge/vits_mask-rcnn_coco-512.py

Windowed backbone, four levels of 96 channels, 256 proposals, a box head of two fully connected layers: ViTDet's own box
head of four convolutions costs five times the backbone. Score: not measured (no COCO here).
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_instance_512.py",
    "../_base_/models/edge_mask-rcnn.py",
    "../_base_/schedules/edge_36e.py",
]
