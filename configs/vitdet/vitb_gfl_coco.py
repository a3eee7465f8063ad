"""GFL (arXiv:2006.04388) of MMDetection on a ViT-B: of the model only backbone and neck are exchanged, COCO.

    python tools/train.py configs/vitdet/vitb_gfl_coco.py

MAE's weights as for configs/vitdet_coco.py, the schedule of MMDetection's 1x config with ViTDet's optimizer.
Score: not measured.
"""

_base_ = "mmdet::gfl/gfl_r50_fpn_1x_coco.py"
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True,
        type="vitdense.ViT",
        arch="base",
        window_size=14,
        global_attn_indexes=(2, 5, 8, 11),
        drop_path_rate=0.1,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/mae_pretrain_vit_base.pth",
            source="mae",
        ),
    ),
    neck=dict(
        _delete_=True,
        type="vitdense.SimpleFeaturePyramid",
        in_channels=768,
        out_channels=256,
        scales=(2, 1, 0.5),
        num_outs=5,
    ),
)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0),
)
