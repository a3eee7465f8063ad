"""ViTDet-H, Cascade Mask R-CNN, COCO (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-h_cascade-mask-rcnn_coco.py --amp

Score as published, 75 epochs: box AP 58.7, mask AP 51.0. Not measured here. Weights (mae_pretrain_vit_huge.pth, patch
14 resampled to 16) and data as for configs/vitdet_coco.py; the published detector is detectron2's
model_final_f05665.pkl.
"""

_base_ = ["vitdet-h_mask-rcnn_coco.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_coco}}
