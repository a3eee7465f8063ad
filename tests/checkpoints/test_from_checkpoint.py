"""The ViT that fits the published files: sizes as published, values left out."""

import pytest
import torch

from vitdense.checkpoints import vit_options


def empty(*shape):
    return torch.zeros(1).expand(shape)


def blocks(dims, depth, extra=None):
    state = {}
    for i in range(depth):
        name = f"blocks.{i}"
        for norm in ("norm1", "norm2"):
            state.update({f"{name}.{norm}.weight": empty(dims), f"{name}.{norm}.bias": empty(dims)})
        state.update({f"{name}.attn.qkv.weight": empty(3 * dims, dims), f"{name}.attn.qkv.bias": empty(3 * dims)})
        state.update({f"{name}.attn.proj.weight": empty(dims, dims), f"{name}.attn.proj.bias": empty(dims)})
        state.update({f"{name}.mlp.fc1.weight": empty(4 * dims, dims), f"{name}.mlp.fc1.bias": empty(4 * dims)})
        state.update({f"{name}.mlp.fc2.weight": empty(dims, 4 * dims), f"{name}.mlp.fc2.bias": empty(dims)})
        state.update({f"{name}.{key}": value for key, value in (extra(i) if extra else {}).items()})
    return state


def stem(dims, patch, positions=None):
    state = {"patch_embed.proj.weight": empty(dims, 3, patch, patch), "patch_embed.proj.bias": empty(dims)}
    if positions is not None:
        state["pos_embed"] = empty(1, positions, dims)
    return state


def final(dims):
    return {"cls_token": empty(1, 1, dims), "norm.weight": empty(dims), "norm.bias": empty(dims)}


def sam(dims, depth, heads, global_blocks):
    def tables(i):
        size = 127 if i in global_blocks else 27
        return {"attn.rel_pos_h": empty(size, dims // heads), "attn.rel_pos_w": empty(size, dims // heads)}

    state = {**stem(dims, 16), **blocks(dims, depth, extra=tables), "pos_embed": empty(1, 64, 64, dims)}
    state = {key.replace("mlp.fc", "mlp.lin"): value for key, value in state.items()}
    return {f"image_encoder.{key}": value for key, value in {**state, "neck.0.weight": empty(256, dims, 1, 1)}.items()}


def vitdet_b():
    def tables(i):
        size = 127 if i in (2, 5, 8, 11) else 27
        return {"attn.rel_pos_h": empty(size, 64), "attn.rel_pos_w": empty(size, 64)}

    state = {**stem(768, 16, 197), **blocks(768, 12, extra=tables)}
    return {f"backbone.net.{key}": value for key, value in state.items()}


def scales(dims):
    return lambda i: {"ls1.gamma": empty(dims), "ls2.gamma": empty(dims)}


def dinov2_giant():
    state = {**stem(1536, 14, 1370), **final(1536), **blocks(1536, 40, extra=scales(1536))}
    state = {key: value for key, value in state.items() if ".mlp." not in key}
    for i in range(40):
        mlp = f"blocks.{i}.mlp"
        state.update({f"{mlp}.w12.weight": empty(8192, 1536), f"{mlp}.w12.bias": empty(8192)})
        state.update({f"{mlp}.w3.weight": empty(1536, 4096), f"{mlp}.w3.bias": empty(1536)})
    return {**state, "mask_token": empty(1, 1536)}


def dinov3(dims, depth):
    state = {**stem(dims, 16), **final(dims), **blocks(dims, depth, extra=scales(dims))}
    return {
        **state,
        "storage_tokens": empty(1, 4, dims),
        "rope_embed.periods": 100 ** (torch.arange(16) / 16),
        "mask_token": empty(1, dims),
    }


def beit_b():
    def extra(i):
        return {
            "gamma_1": empty(768),
            "gamma_2": empty(768),
            "attn.q_bias": empty(768),
            "attn.v_bias": empty(768),
            "attn.relative_position_bias_table": empty(732, 12),
            "attn.relative_position_index": empty(197, 197),
        }

    state = {**stem(768, 16), "cls_token": empty(1, 1, 768), **blocks(768, 12, extra=extra)}
    state = {key: value for key, value in state.items() if not key.endswith("qkv.bias")}
    return {**state, "fc_norm.weight": empty(768), "head.weight": empty(1000, 768)}


CASES = {
    "MAE H/14": (
        {**stem(1280, 14, 257), **final(1280), **blocks(1280, 32), "decoder_embed.weight": empty(512, 1280)},
        dict(heads=16, patch_size=14, pretrain_img_size=(224, 224), final_norm=False),
    ),
    "DeiT-S distilled": (
        {**stem(384, 16, 198), **final(384), **blocks(384, 12), "dist_token": empty(1, 1, 384)},
        dict(heads=6, with_cls_token=True, num_register_tokens=1, norm_eps=1e-6),
    ),
    "DeiT III B": (
        {
            **stem(768, 16, 196),
            **final(768),
            **blocks(768, 12, extra=lambda i: {"gamma_1": empty(768), "gamma_2": empty(768)}),
        },
        dict(heads=12, layer_scale_init=1.0, pretrain_img_size=(224, 224)),
    ),
    "DINOv2 S with registers of timm": (
        {
            **stem(384, 14, 1369),
            **final(384),
            **blocks(384, 12, extra=scales(384)),
            "reg_token": empty(1, 4, 384),
        },
        dict(heads=6, num_register_tokens=4, interpolate_antialias=True, interpolate_offset=0.0),
    ),
    "DINOv2 giant": (
        dinov2_giant(),
        dict(heads=24, mlp="swiglu", pretrain_img_size=(518, 518), interpolate_offset=0.1, final_norm=True),
    ),
    "DINOv3 S": (dinov3(384, 12), dict(heads=6, pos_embed="rotary", num_register_tokens=4, norm_eps=1e-5)),
    "DINOv3 H+": (dinov3(1280, 32), dict(heads=20, pos_embed="rotary")),
    "BEiT-B": (beit_b(), dict(heads=12, rel_pos_bias=True, img_size=224, pos_embed="none", qkv_bias=True)),
    "SAM B": (
        sam(768, 12, 12, (2, 5, 8, 11)),
        dict(heads=12, window_size=14, global_attn_indexes=(2, 5, 8, 11), img_size=(1024, 1024), with_cls_token=False),
    ),
    "ViTDet-L without relative position": (
        {f"backbone.net.{k}": v for k, v in {**stem(1024, 16, 197), **blocks(1024, 24)}.items()},
        dict(heads=16, window_size=14, global_attn_indexes=(5, 11, 17, 23)),
    ),
    "SAM H": (sam(1280, 32, 16, (7, 15, 23, 31)), dict(heads=16, global_attn_indexes=(7, 15, 23, 31))),
    "ViTDet-B": (
        vitdet_b(),
        dict(heads=12, window_size=14, global_attn_indexes=(2, 5, 8, 11), pretrain_img_size=(224, 224)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_options_of_published_sizes(name):
    state, expected = CASES[name]
    options = vit_options(state)
    assert options["arch"]["num_heads"] == expected.pop("heads")
    assert {key: options[key] for key in expected} == expected


def test_a_vitdet_of_mmdetection_is_recognised_inside_its_model():
    state = {f"backbone.{key.removeprefix('backbone.net.')}": value for key, value in vitdet_b().items()}
    options = vit_options({**state, "neck.simfp_2.0.weight": empty(2), "roi_head.mask_head.convs.0.weight": empty(2)})
    assert options["use_rel_pos"] and options["window_size"] == 14
