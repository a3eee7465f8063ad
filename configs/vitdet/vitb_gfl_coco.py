"""GFL (arXiv:2006.04388) of MMDetection on a ViT-B: of the model only backbone and neck are exchanged, COCO.

    python tools/train.py configs/vitdet/vitb_gfl_coco.py

MAE's weights as for configs/vitdet_coco.py, the schedule of MMDetection's 1x config with ViTDet's optimizer.
Score: not measured.
"""

_base_ = ["mmdet::gfl/gfl_r50_fpn_1x_coco.py", "../_base_/models/vitb_mae_parts.py"]
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(backbone={{_base_.vitb_backbone}}, neck={{_base_.five_levels}})
optim_wrapper = {{_base_.vitdet_optimizer}}
