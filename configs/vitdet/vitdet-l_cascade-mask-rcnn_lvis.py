"""ViTDet-L, Cascade Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-l_cascade-mask-rcnn_lvis.py --amp

Score as published: box AP 49.2, mask AP 44.5. Not measured here. Weights
as for vitdet-l_mask-rcnn_coco.py; the published detector is detectron2's model_final_3e81c2.pkl.
"""

_base_ = ["vitdet-l_mask-rcnn_lvis.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_lvis}}
