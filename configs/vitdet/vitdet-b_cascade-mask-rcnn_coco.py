"""ViTDet-B, Cascade Mask R-CNN, COCO (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py --amp

Score as published: box AP 54.0, mask AP 46.7. Not measured here. Weights and data as for configs/vitdet_coco.py; the
published detector is detectron2's model_final_435fa9.pkl.
"""

_base_ = ["../vitdet_coco.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_coco}}
