# ViT-S for edge devices at 512 x 512: patch 16, windows of 16 x 16 patches that divide the 32 x 32 grid, so that tokens
# are permuted once and no block partitions them; four global blocks. Starts from the DINOv2 ViT-S of dinov2_small.py.
_base_ = ["dinov2_small.py"]
model = dict(
    backbone=dict(patch_size=16, pretrain_img_size=592, window_size=16, global_attn_indexes=(2, 5, 8, 11)),
)
