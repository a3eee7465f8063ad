"""ViT-S with one-stage instance segmentation (RTMDet-Ins, arXiv:2212.07784) for edge devices, 512 x 512, COCO.

    python tools/train.py configs/edge/vits_rtmdet-ins_coco-512.py

Windowed backbone, three levels of 96 channels, masks from dynamic convolutions at stride 8.
Score: not measured (no COCO here).
"""

_base_ = [
    "../_base_/det_runtime.py",
    "../_base_/datasets/coco_instance_512.py",
    "../_base_/models/edge_rtmdet-ins.py",
    "../_base_/schedules/edge_36e.py",
]
