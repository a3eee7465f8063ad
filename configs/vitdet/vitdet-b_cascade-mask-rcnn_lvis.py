"""ViTDet-B, Cascade Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-b_cascade-mask-rcnn_lvis.py --amp

Score as published: box AP 43.0, mask AP 38.9. Not measured here. Needs the
package `lvis`. Weights as for configs/vitdet_coco.py; the published detector is detectron2's model_final_df306f.pkl.
"""

_base_ = ["vitdet-b_mask-rcnn_lvis.py", "../_base_/models/vitdet_cascade.py"]

model = {{_base_.cascade_lvis}}
