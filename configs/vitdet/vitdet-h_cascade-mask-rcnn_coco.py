"""ViTDet-H, Cascade Mask R-CNN, COCO (arXiv:2203.16527, table 5; detectron2 at 02b5c4e, projects/ViTDet).

    python tools/train.py configs/vitdet/vitdet-h_cascade-mask-rcnn_coco.py --amp

Score as published, 75 epochs: box AP 58.7, mask AP 51.0. Not measured here. Weights (mae_pretrain_vit_huge.pth, patch
14 resampled to 16) and data as for configs/vitdet_coco.py; the published detector is detectron2's
model_final_f05665.pkl.
"""

_base_ = ["vitdet-b_cascade-mask-rcnn_coco.py"]

model = dict(
    backbone=dict(
        arch="huge",
        global_attn_indexes=(7, 15, 23, 31),
        drop_path_rate=0.5,
        init_cfg=dict(checkpoint="{{$VITDENSE_DATA:data}}/checkpoints/mae_pretrain_vit_huge.pth"),
    ),
    neck=dict(in_channels=1280),
)
# As published, H decays the weights of norms and position table too.
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, decay_rate=0.9))
# 75 epochs; the rate falls at the same parts of the training (detectron2: mask_rcnn_vitdet_h_75ep.py).
max_iters = 184375 * 3 // 4
train_cfg = dict(max_iters=max_iters)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(
        type="MultiStepLR",
        begin=0,
        end=max_iters,
        by_epoch=False,
        milestones=[163889 * 3 // 4, 177546 * 3 // 4],
        gamma=0.1,
    ),
]
