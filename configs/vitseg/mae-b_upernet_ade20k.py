"""UPerNet on MAE's ViT-B (arXiv:2111.06377), ADE20K: MMSegmentation's recipe on this backbone.

    python tools/train.py configs/vitseg/mae-b_upernet_ade20k.py --amp

Score as published (MMSegmentation, mae-base_upernet_8xb2-amp-160k): mIoU 48.13; MAE's own paper has 48.1. Not measured
here. Fine-tuned with BEiT's relative-position bias and LayerScale, both of which change nothing at first. Weights as
for configs/vitdet_coco.py.
"""

_base_ = "mmseg::mae/mae-base_upernet_8xb2-amp-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type="vitdense.ViT",
        arch="base",
        img_size=512,
        out_indices=(3, 5, 7, 11),
        rel_pos_bias=True,
        with_cls_token=True,
        layer_scale_init=1.0,
        drop_path_rate=0.1,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/mae_pretrain_vit_base.pth",
            source="mae",
        ),
    ),
)
optim_wrapper = dict(
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    paramwise_cfg=dict(_delete_=True, decay_rate=0.65, norm_decay_mult=0.0),
)
