"""ViTDet-H, Cascade Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-h_cascade-mask-rcnn_lvis.py --amp

Score as published: box AP 51.5, mask AP 46.6. Not measured here. Weights
as for vitdet-h_mask-rcnn_coco.py; the published detector is detectron2's model_final_11bbb7.pkl.
"""

_base_ = ["vitdet-h_mask-rcnn_lvis.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_lvis}}
