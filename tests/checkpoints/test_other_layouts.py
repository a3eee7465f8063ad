"""The same weights in the layouts of other projects: DINO's training files, the JAX release, OpenMMLab's models."""

import argparse
import re

import numpy as np
import pytest
import torch

from tests.checkpoints.oracles import CASES, build, error_of, found_map, image_of, oracle_map, oracle_of, to_original
from vitdense.checkpoints import vit_from_checkpoint


def test_dino_training_file(tmp_path):
    state = to_original("vit", oracle_of("vit").state_dict())
    teacher = {f"backbone.{key}": value for key, value in state.items()}
    teacher |= {"head.mlp.0.weight": torch.ones(2), "head.last_layer.weight_v": torch.ones(2)}
    args = argparse.Namespace(arch="vit_small", lr=1e-3)  # stored by the training scripts of DINO, MAE and DeiT
    torch.save({"student": {}, "teacher": teacher, "epoch": 3, "args": args}, tmp_path / "dino.pth")
    model, report = build_from_file(tmp_path / "dino.pth")
    assert report.source == "dino" and report.ignored[:2] == ["head.mlp.0.weight", "head.last_layer.weight_v"]
    assert model.pos_embed.interpolate_offset == 0.1


def build_from_file(path, **options):
    return vit_from_checkpoint(path, num_heads=4, **options)


def test_flax_file(tmp_path, parity):
    oracle = oracle_of("vit")
    state = to_original("vit", oracle.state_dict())
    arrays = {
        "cls": state["cls_token"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/encoder_norm/scale": state["norm.weight"],
        "Transformer/encoder_norm/bias": state["norm.bias"],
        "head/kernel": torch.ones(48, 5),
    }
    for i in range(3):
        block, ours = f"Transformer/encoderblock_{i}", f"blocks.{i}"
        for theirs, norm in (("LayerNorm_0", "norm1"), ("LayerNorm_2", "norm2")):
            arrays[f"{block}/{theirs}/scale"] = state[f"{ours}.{norm}.weight"]
            arrays[f"{block}/{theirs}/bias"] = state[f"{ours}.{norm}.bias"]
        weight, bias = state[f"{ours}.attn.qkv.weight"], state[f"{ours}.attn.qkv.bias"]
        attention = f"{block}/MultiHeadDotProductAttention_1"
        for index, part in enumerate(("query", "key", "value")):
            arrays[f"{attention}/{part}/kernel"] = weight[48 * index : 48 * (index + 1)].T.reshape(48, 4, 12)
            arrays[f"{attention}/{part}/bias"] = bias[48 * index : 48 * (index + 1)].reshape(4, 12)
        arrays[f"{attention}/out/kernel"] = state[f"{ours}.attn.proj.weight"].T.reshape(4, 12, 48)
        arrays[f"{attention}/out/bias"] = state[f"{ours}.attn.proj.bias"]
        for index in (0, 1):
            arrays[f"{block}/MlpBlock_3/Dense_{index}/kernel"] = state[f"{ours}.mlp.fc{index + 1}.weight"].T
            arrays[f"{block}/MlpBlock_3/Dense_{index}/bias"] = state[f"{ours}.mlp.fc{index + 1}.bias"]
    np.savez(tmp_path / "B_16.npz", **{key: value.numpy() for key, value in arrays.items()})
    model, report = build_from_file(tmp_path / "B_16.npz", final_norm=True)
    assert report.source == "augreg" and report.ignored == ["head/kernel"]
    image = image_of(64)
    error = error_of(found_map(model.eval(), image), oracle_map(oracle, "vit", image))
    parity("augreg (.npz)", "transformers ViTModel", "native, 64 x 64", error)


MMPRETRAIN = [
    (r"patch_embed\.proj\.", "patch_embed.projection."),
    (r"^blocks\.", "layers."),
    (r"\.norm([12])\.", r".ln\1."),
    (r"\.mlp\.fc1\.", ".ffn.layers.0.0."),
    (r"\.mlp\.fc2\.", ".ffn.layers.1."),
    (r"\.mlp\.(w12|w3)\.", r".ffn.\1."),
    (r"\.ls1\.gamma$", ".attn.gamma1.weight"),
    (r"\.ls2\.gamma$", ".ffn.gamma2.weight"),
    (r"^norm\.", "ln1."),
    (r"^", "backbone."),
]
MMSEG = MMPRETRAIN[:-1] + [
    (r"\.attn\.qkv\.(weight|bias)", r".attn.attn.in_proj_\1"),
    (r"\.attn\.proj\.", ".attn.attn.out_proj."),
    (r"^", "backbone."),
]
OPENMMLAB = {
    "MMPretrain, ViT": ("vit", MMPRETRAIN),
    "MMSegmentation, ViT": ("vit", MMSEG),
    "MMPretrain, distilled DeiT": ("deit", MMPRETRAIN),
    "MMPretrain, BEiT": ("beit", MMPRETRAIN),  # MMSegmentation's has the same names
    "MMPretrain, BEiT, shared": ("beit_shared", MMPRETRAIN),
    "MMPretrain, DINOv2": ("dinov2", MMPRETRAIN),
    "MMPretrain, DINOv2 giant": ("dinov2_giant", MMPRETRAIN),
}


def to_openmmlab(name, rules):
    state = {}
    for key, value in to_original(name, oracle_of(name).state_dict()).items():
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        state[key] = value
    return state


@pytest.mark.parametrize("kind", OPENMMLAB)
def test_openmmlab_names(kind, parity):
    name, rules = OPENMMLAB[kind]
    _, _, size, _, normed = CASES[name]
    unused = {"decode_head.conv_seg.weight": torch.ones(2), "backbone.ln2.weight": torch.ones(2)}
    if name.startswith("beit"):
        unused["backbone.layers.0.attn.relative_position_index"] = torch.ones(2)
    state = {**unused, **to_openmmlab(name, rules)}
    model, report = build(state, normed)
    assert report.source == "openmmlab" and set(unused) <= set(report.ignored)
    assert {key.split(".")[-1] for key in set(report.ignored) - set(unused)} <= {"mask_token"}
    image = image_of(size)
    error = error_of(found_map(model, image), oracle_map(oracle_of(name), name, image))
    oracle = f"transformers {type(oracle_of(name)).__name__}"
    parity(f"openmmlab ({kind})", oracle, f"native, {size} x {size}", error)


def test_openmmlab_names_that_mean_the_same():
    state = to_openmmlab("vit", MMPRETRAIN)
    state["backbone.layers.0.attn.attn.in_proj_weight"] = state["backbone.layers.0.attn.qkv.weight"]
    with pytest.raises(ValueError, match="are both backbone.blocks.0.attn.qkv.weight of a ViT"):
        build(state, True)


def test_openmmlab_dinov2_needs_its_norm():
    state = to_openmmlab("dinov2", MMPRETRAIN)
    del state["backbone.ln1.weight"], state["backbone.ln1.bias"]
    with pytest.raises(ValueError, match="the features of DINOv2 need LayerScale and a final norm"):
        build(state, True)
