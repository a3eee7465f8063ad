"""ViTDet-L, Cascade Mask R-CNN, COCO (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-l_cascade-mask-rcnn_coco.py --amp

Score as published: box AP 57.6, mask AP 50.0. Not measured here. Weights
(mae_pretrain_vit_large.pth) and data as for configs/vitdet_coco.py; the published detector is detectron2's
model_final_1a9f28.pkl.
"""

_base_ = ["vitdet-l_mask-rcnn_coco.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_coco}}
