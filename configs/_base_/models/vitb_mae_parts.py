# Parts for models of MMDetection of which only backbone and neck are exchanged: ViTDet's ViT-B from MAE's weights,
# levels of stride 8 upward, ViTDet's optimizer. Variables and no `model`: so they stand beside a base that has one.
vitb_backbone = dict(
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
)
five_levels = dict(
    _delete_=True,
    type="vitdense.SimpleFeaturePyramid",
    in_channels=768,
    out_channels=256,
    scales=(2, 1, 0.5),
    num_outs=5,
)
vitdet_optimizer = dict(
    _delete_=True,
    type="OptimWrapper",
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0),
)
