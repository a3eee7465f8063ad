# A windowed ViT of width 48 and depth 4 for small models. A variable and no `model`: so it stands beside a base that
# has one.
vit48 = dict(
    _delete_=True,
    type="vitdense.ViT",
    arch=dict(embed_dims=48, depth=4, num_heads=3),
    patch_size=8,
    pretrain_img_size=256,
    window_size=8,
    global_attn_indexes=(1, 3),
)
