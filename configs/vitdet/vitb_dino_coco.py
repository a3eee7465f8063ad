"""DINO (arXiv:2203.03605) of MMDetection on a ViT-B: of the model only backbone and neck are exchanged, COCO.

    python tools/train.py configs/vitdet/vitb_dino_coco.py

MAE's weights as for configs/vitdet_coco.py, four levels of stride 8 to 64. Score: not measured.
"""

_base_ = ["mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py", "../_base_/models/vitb_mae_parts.py"]
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(
    backbone={{_base_.vitb_backbone}},
    neck=dict(
        _delete_=True,
        type="vitdense.SimpleFeaturePyramid",
        in_channels=768,
        out_channels=256,
        scales=(2, 1, 0.5),
        num_outs=4,
    ),
)
