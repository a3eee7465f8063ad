"""ViTDet-H, Cascade Mask R-CNN, LVIS v1 (arXiv:2203.16527, section 4.4; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-h_cascade-mask-rcnn_lvis.py --amp

Score as published: box AP 51.5, mask AP 46.6. Not measured here. Weights
as for vitdet-h_mask-rcnn_coco.py; the published detector is detectron2's model_final_11bbb7.pkl.
"""

_base_ = ["vitdet-b_cascade-mask-rcnn_lvis.py"]

model = dict(
    backbone=dict(
        arch="huge",
        global_attn_indexes=(7, 15, 23, 31),
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/mae_pretrain_vit_huge.pth"),
    ),
    neck=dict(in_channels=1280),
)
# As published, H decays the weights of norms and position table too.
optim_wrapper = dict(optimizer=dict(lr=1e-4), paramwise_cfg=dict(_delete_=True, decay_rate=0.9))
