"""SETR-MLA (arXiv:2012.15840) on ViT-L, ADE20K: MMSegmentation's recipe on this backbone (without dropout inside it).

    python tools/train.py configs/vitseg/vitl_setr-mla_ade20k.py

Score as published (MMSegmentation, setr_vit-l_mla_8xb2-160k): mIoU 47.39. Not measured here. Put the ViT-L/16 of
ImageNet-21k at 384 pixels (.npz of the JAX release, as vit-l16_384.npz) into data/checkpoints/.
"""

_base_ = "mmseg::setr/setr_vit-l_mla_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitdense"], allow_failed_imports=False)

model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type="vitdense.ViT",
        arch="large",
        pretrain_img_size=384,
        out_indices=(5, 11, 17, 23),
        with_cls_token=False,
        init_cfg=dict(
            type="vitdense.Pretrained",
            checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/vit-l16_384.npz",
            source="augreg",
        ),
    ),
)
