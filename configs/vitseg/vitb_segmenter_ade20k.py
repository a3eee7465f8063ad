"""Segmenter (arXiv:2105.05633) on ViT-B, ADE20K: MMSegmentation's recipe on this backbone.

    python tools/train.py configs/vitseg/vitb_segmenter_ade20k.py

Score as published (MMSegmentation, segmenter_vit-b_mask_8xb1-160k): mIoU 49.60. Not measured here. Put AugReg's
ViT-B/16 at 384 pixels (.npz of the JAX release, as augreg_vit-b16_384.npz) into data/checkpoints/.
"""

_base_ = "mmseg::segmenter/segmenter_vit-b_mask_8xb1-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type="vitdense.ViT",
        arch="base",
        pretrain_img_size=384,
        with_cls_token=True,
        final_norm=True,
        drop_path_rate=0.1,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/augreg_vit-b16_384.npz",
            source="augreg",
        ),
    ),
)
