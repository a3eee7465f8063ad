"""Every source against transformers' implementation: all parameters random, native size, and original names too."""

import argparse
import re

import numpy as np
import pytest
import torch

from vitdense.checkpoints import load_pretrained, vit_from_checkpoint
from vitdense.models import ViT

transformers = pytest.importorskip("transformers")
LIMIT = 1e-4
SIZES = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)


def draw(model, seed=0):
    """Weights and biases N(0, 0.05), norm weights 1 + N(0, 0.1), LayerScale 1 + N(0, 0.1)."""
    generator = torch.Generator().manual_seed(seed)
    norms = {id(module.weight) for module in model.modules() if "Norm" in type(module).__name__ and module._parameters}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            near_one = id(parameter) in norms or "lambda" in name
            parameter.copy_(1 + 0.1 * noise if near_one else 0.05 * noise)
    return model.eval()


def vit():
    config = transformers.ViTConfig(**SIZES, image_size=64, layer_norm_eps=1e-6)
    return transformers.ViTModel(config, add_pooling_layer=False)


def mae():
    config = transformers.ViTMAEConfig(
        **SIZES, image_size=64, layer_norm_eps=1e-6, mask_ratio=0.0, decoder_hidden_size=32,
        decoder_num_attention_heads=2, decoder_num_hidden_layers=1, decoder_intermediate_size=32,
    )  # fmt: skip
    return transformers.ViTMAEForPreTraining(config)


def deit():
    config = transformers.DeiTConfig(**SIZES, image_size=64, layer_norm_eps=1e-6)
    return transformers.DeiTModel(config, add_pooling_layer=False)


def beit(shared=False):
    config = transformers.BeitConfig(
        **SIZES, image_size=64, layer_norm_eps=1e-6, use_relative_position_bias=not shared,
        use_shared_relative_position_bias=shared, drop_path_rate=0.0,
    )  # fmt: skip
    return transformers.BeitModel(config, add_pooling_layer=False)


def beit_shared():
    return beit(shared=True)


def dinov2(**options):
    sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
    return transformers.Dinov2Model(
        transformers.Dinov2Config(**sizes, image_size=56, patch_size=14, mlp_ratio=2, **options)
    )


def dinov2_giant():
    return dinov2(use_swiglu_ffn=True)


def dinov2_registers():
    sizes = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
    config = transformers.Dinov2WithRegistersConfig(**sizes, image_size=56, patch_size=14, mlp_ratio=2)
    return transformers.Dinov2WithRegistersModel(config)


def dinov3(**options):
    config = transformers.DINOv3ViTConfig(**SIZES, image_size=64, num_register_tokens=4, **options)
    return transformers.DINOv3ViTModel(config)


def dinov3_gated():
    return dinov3(use_gated_mlp=True, hidden_act="silu")


def sam():
    config = transformers.SamVisionConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, mlp_dim=96, image_size=96, window_size=4,
        global_attn_indexes=[1], output_channels=16,
    )  # fmt: skip
    return transformers.SamVisionModel(config)


def vitdet():
    config = transformers.VitDetConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, mlp_ratio=2, image_size=96,
        pretrain_image_size=64, window_size=4, window_block_indices=[0, 2], residual_block_indices=[0, 2],
        use_relative_position_embeddings=True, out_indices=[3],
    )  # fmt: skip
    return transformers.VitDetBackbone(config)


# Oracle, source that 'auto' takes, pixels, tokens before the patches, whether the oracle's output is normed.
CASES = {
    "vit": (vit, "vit", 64, 1, True),
    "mae": (mae, "mae", 64, 1, True),
    "deit": (deit, "deit", 64, 2, True),
    "beit": (beit, "beit", 64, 1, False),
    "beit_shared": (beit_shared, "beit", 64, 1, False),
    "dinov2": (dinov2, "dinov2", 56, 1, True),
    "dinov2_giant": (dinov2_giant, "dinov2", 56, 1, True),
    "dinov2_registers": (dinov2_registers, "dinov2", 56, 5, True),
    "dinov3": (dinov3, "dinov3", 64, 5, True),
    "dinov3_gated": (dinov3_gated, "dinov3", 64, 5, True),
    "sam": (sam, "sam", 96, 0, False),
    "vitdet": (vitdet, "vitdet", 96, 0, False),
}


@pytest.fixture(scope="module")
def oracles():
    kept = {}

    def get(name):
        if name not in kept:
            kept[name] = draw(CASES[name][0]())
        return kept[name]

    return get


def oracle_map(oracle, name, image):
    """The oracle's patches of its last block, (B, C, H, W)."""
    with torch.no_grad():
        if name == "sam":
            return oracle(image, output_hidden_states=True).hidden_states[-1].permute(0, 3, 1, 2)
        if name == "vitdet":
            return oracle(image).feature_maps[-1]
        if name == "mae":
            noise = torch.arange(image.shape[-1] ** 2 // 256).float()[None].expand(len(image), -1)  # keeps the order
            tokens = oracle.vit(image, noise=noise).last_hidden_state
        else:
            tokens = oracle(image).last_hidden_state
    _, _, _, prefix, _ = CASES[name]
    side = round((tokens.shape[1] - prefix) ** 0.5)
    return tokens[:, prefix:].transpose(1, 2).unflatten(2, (side, side))


def build(state, normed, source="auto", **options):
    overrides = dict(final_norm=True) if normed else {}
    model, report = vit_from_checkpoint(state, source, num_heads=4, **overrides, **options)
    return model.eval(), report


def asked(source):
    """What a user gives as source: plain ViTs have to be named, the others are recognised."""
    return "vit" if source == "vit" else "auto"


def found_map(model, image):
    with torch.no_grad():
        return model(image)[0]


def error_of(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def image_of(size):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CASES)
def test_parity_at_the_native_size(oracles, name, parity):
    _, source, size, _, normed = CASES[name]
    oracle, image = oracles(name), image_of(size)
    model, report = build(oracle.state_dict(), normed, asked(source))
    assert not report.notes
    assert report.source == source and not report.interpolated and not report.resampled and not report.initialised
    error = error_of(found_map(model, image), oracle_map(oracle, name, image))
    parity(f"{source} ({name})", f"transformers {type(oracle).__name__}", f"native, {size} x {size}", error)


@pytest.mark.parametrize("shape", [(80, 128), (48, 64)])
def test_rotary_positions_at_other_sizes(oracles, shape, parity):
    oracle = oracles("dinov3")
    model, _ = build(oracle.state_dict(), True)
    image = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = oracle(image).last_hidden_state[:, 5:].transpose(1, 2)
    error = error_of(found_map(model, image).flatten(2), expected)
    parity("dinov3", "transformers DINOv3ViTModel", "{} x {}".format(*shape), error)


@pytest.mark.parametrize("name", CASES)
def test_every_perturbed_tensor_is_noticed(oracles, name):
    """So nothing is loaded to the wrong place or left out, but for what is ignored, and key biases (bit-equal)."""
    _, source, size, _, normed = CASES[name]
    oracle, image = oracles(name), image_of(size)[:1]
    expected = oracle_map(oracle, name, image)
    original = {key: value.clone() for key, value in oracle.state_dict().items()}
    generator = torch.Generator().manual_seed(2)
    _, report = build(original, normed, asked(source))
    for key, value in original.items():
        changed = value + 2 * torch.randn(value.shape, generator=generator)
        model, _ = build({**original, key: changed}, normed, asked(source))
        error = error_of(found_map(model, image), expected)
        if key in report.ignored or key == "embeddings.mask_token":
            assert error <= LIMIT, key
        elif key.endswith(("k_proj.bias", "key.bias")):
            block = re.search(r"\.(\d+)\.", key)[1]
            assert torch.equal(model.get_parameter(f"blocks.{block}.attn.qkv.bias")[48:96], changed)
        elif key.endswith("position_embeddings") and name == "vitdet":
            assert error > LIMIT, key  # its cls entry alone is unused
        else:
            assert error > LIMIT, f"{key} was perturbed and the output stayed the same"


def to_original(name, state):
    """The state of transformers' model under the names of the family's original repository."""
    rules = {
        "vit": TIMM, "mae": TIMM, "deit": TIMM, "beit": TIMM + BEIT, "beit_shared": TIMM + BEIT,
        "dinov2": TIMM, "dinov2_giant": TIMM, "dinov2_registers": TIMM, "dinov3": TIMM + DINOV3,
        "dinov3_gated": TIMM + DINOV3, "sam": SAM, "vitdet": DETECTRON2,
    }[name]  # fmt: skip
    renamed = {}
    for key, value in state.items():
        if key.startswith("decoder."):
            continue
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        renamed[key] = value
    for key in [key for key in renamed if key.endswith(".attn.q.weight")]:
        stem = key.removesuffix("q.weight")
        renamed[stem + "qkv.weight"] = torch.cat([renamed.pop(f"{stem}{part}.weight") for part in "qkv"])
        biases = {part: renamed.pop(f"{stem}{part}.bias", None) for part in "qkv"}
        if name.startswith("beit"):
            renamed[stem + "q_bias"], renamed[stem + "v_bias"] = biases["q"], biases["v"]
            continue
        if name.startswith("dinov3"):  # the original stores NaN for the key's bias and masks it
            biases["k"] = torch.full_like(biases["q"], float("nan"))
            width = len(biases["q"])
            renamed[stem + "qkv.bias_mask"] = torch.cat([torch.ones(width), torch.zeros(width), torch.ones(width)])
        renamed[stem + "qkv.bias"] = torch.cat([biases[part] for part in "qkv"])
    for key in [key for key in renamed if key.endswith("mlp.gate.weight") and name.startswith("dinov2")]:
        stem = key.removesuffix("gate.weight")
        for kind in ("weight", "bias"):
            renamed[f"{stem}w12.{kind}"] = torch.cat([renamed.pop(f"{stem}{part}.{kind}") for part in ("gate", "up")])
            renamed[f"{stem}w3.{kind}"] = renamed.pop(f"{stem}down.{kind}")
    return renamed


TIMM = [
    (r"^(?:vit|beit|deit)\.", ""),
    (r"^embeddings\.patch_embeddings\.(?:projection\.)?", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.", ""),
    (r"^(?:encoder\.layer|model\.layer|layers)\.", "blocks."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.mlp\.(gate|up|down)_proj\.", r".mlp.\1."),
    (r"^layernorm\.", "norm."),
]
BEIT = [
    (r"\.lambda_([12])$", r".gamma_\1"),
    (r"^(blocks\.\d+)\.relative_position_bias\.", r"\1.attn."),
    (r"^shared_position_bias\.", "rel_pos_bias."),
]
DINOV3 = [(r"^register_tokens$", "storage_tokens")]
SAM = [
    (r"^vision_encoder\.", "image_encoder."),
    (r"patch_embed\.projection\.", "patch_embed.proj."),
    (r"\.layers\.(\d+)\.", r".blocks.\1."),
    (r"\.layer_norm([12])\.", r".norm\1."),
    (r"neck\.conv1\.", "neck.0."),
    (r"neck\.norm1\.", "neck.1."),
    (r"neck\.conv2\.", "neck.2."),
    (r"neck\.norm2\.", "neck.3."),
]
DETECTRON2 = [
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.projection\.", "patch_embed.proj."),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.attention\.", ".attn."),
    (r"^", "backbone.net."),
]


@pytest.mark.parametrize("name", CASES)
def test_original_names(oracles, name, parity):
    _, source, size, _, normed = CASES[name]
    oracle, image = oracles(name), image_of(size)
    state = to_original(name, oracle.state_dict())
    if name.startswith("dinov3"):
        gated = "blocks.0.mlp.gate.weight" in state
        layers = dict(gate="w1", up="w2", down="w3") if gated else dict(up="fc1", down="fc2")
        state = {re.sub(r"\.mlp\.(gate|up|down)\.", lambda m: f".mlp.{layers[m[1]]}.", k): v for k, v in state.items()}
        state["rope_embed.periods"] = (100 ** (torch.arange(3) / 3)).bfloat16()  # as published
    extra = {"mae": "decoder_embed.weight", "vit": "head.weight", "sam": "mask_decoder.x", "vitdet": "roi_heads.x"}
    if name in extra:
        state[extra[name]] = torch.ones(2)
    if name == "mae":
        state["mask_token"] = torch.ones(2)
    model, report = build(state, normed, asked(source))
    assert report.source == source
    assert set(extra.get(name, "").split()) <= set(report.ignored)
    error = error_of(found_map(model, image), oracle_map(oracle, name, image))
    parity(
        f"{source} ({name}), original names", f"transformers {type(oracle).__name__}", f"native, {size} x {size}", error
    )


def test_dino_training_file(oracles, tmp_path):
    state = to_original("vit", oracles("vit").state_dict())
    teacher = {f"backbone.{key}": value for key, value in state.items()}
    teacher |= {"head.mlp.0.weight": torch.ones(2), "head.last_layer.weight_v": torch.ones(2)}
    args = argparse.Namespace(arch="vit_small", lr=1e-3)  # stored by the training scripts of DINO, MAE and DeiT
    torch.save({"student": {}, "teacher": teacher, "epoch": 3, "args": args}, tmp_path / "dino.pth")
    model, report = build_from_file(tmp_path / "dino.pth")
    assert report.source == "dino" and report.ignored[:2] == ["head.mlp.0.weight", "head.last_layer.weight_v"]
    assert model.pos_embed.interpolate_offset == 0.1


def build_from_file(path, **options):
    return vit_from_checkpoint(path, num_heads=4, **options)


def test_flax_file(oracles, tmp_path, parity):
    oracle = oracles("vit")
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
    (r"^norm\.", "ln1."),
    (r"^", "backbone."),
]
MMSEG = MMPRETRAIN[:-1] + [
    (r"\.attn\.qkv\.(weight|bias)", r".attn.attn.in_proj_\1"),
    (r"\.attn\.proj\.", ".attn.attn.out_proj."),
    (r"^", "backbone."),
]


@pytest.mark.parametrize(("kind", "rules"), [("MMPretrain", MMPRETRAIN), ("MMSegmentation", MMSEG)])
def test_openmmlab_names(oracles, kind, rules, parity):
    oracle, image = oracles("vit"), image_of(64)
    state = {}
    for key, value in to_original("vit", oracle.state_dict()).items():
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        state[key] = value
    state["decode_head.conv_seg.weight"] = torch.ones(2)
    model, report = build(state, normed=True)
    assert report.source == "openmmlab" and report.ignored == ["decode_head.conv_seg.weight"]
    error = error_of(found_map(model, image), oracle_map(oracle, "vit", image))
    parity(f"openmmlab ({kind})", "transformers ViTModel", "native, 64 x 64", error)


def test_a_shared_layout_asks_where_the_family_matters(oracles):
    state = oracles("vit").state_dict()
    choice = r"source='vit' or one of \['deit', 'mae', 'dino'\]"
    with pytest.raises(ValueError, match=choice):  # the ViT that is built resizes its positions at run time
        vit_from_checkpoint(state, num_heads=4)
    sizes = dict(embed_dims=48, depth=3, num_heads=4, mlp_ratio=2)
    options = dict(with_cls_token=True, final_norm=True, interpolate_antialias=True)
    report = load_pretrained(ViT(sizes, pretrain_img_size=64, **options), state)
    assert report.source == "vit" and "the names are those of vit, deit, mae, dino: taken as the first" in str(report)
    with pytest.raises(ValueError, match=choice):
        load_pretrained(ViT(sizes, pretrain_img_size=96, **options), state)
    tables = {}
    for source in ("vit", "deit", "mae", "dino"):
        larger, report = build(state, True, source, pretrain_img_size=96)
        assert report.interpolated == {"pos_embed.weight": "(4, 4) -> (6, 6)"} and not report.notes
        tables[source] = larger.pos_embed.weight
    assert torch.equal(tables["deit"], tables["mae"])
    assert not torch.allclose(tables["dino"], tables["mae"], atol=1e-3)


def test_conventions_of_the_family_are_compared_with_the_model(oracles):
    state = oracles("dinov3").state_dict()
    for change, message in (
        (dict(pos_embed="none"), "needs rotary positions: set pos_embed='rotary'"),
        (dict(rotary_base=1e4), "set rotary_base=100"),
    ):
        with pytest.raises(ValueError, match=message):
            build(state, False, **change)
    with pytest.raises(ValueError, match="has no rotary positions: set pos_embed='learned'"):
        build(oracles("dinov2").state_dict(), False, pos_embed="rotary")
    _, report = build(state, False, norm_eps=1e-6)
    assert report.notes == ["norm_eps is 1e-06, the source's 1e-05"]
    original = to_original("dinov2", oracles("dinov2").state_dict())
    _, report = build(original, False, interpolate_offset=0.0)
    assert report.notes == ["interpolate_offset is 0.0, the source's 0.1: at other sizes its positions differ"]
    with pytest.raises(ValueError, match="expected the periods of the base 100"):
        wrong = to_original("dinov3", state) | {"rope_embed.periods": torch.ones(3)}
        build({key.replace("mlp.up", "mlp.fc1").replace("mlp.down", "mlp.fc2"): v for key, v in wrong.items()}, False)


def test_vitdet_without_tables_keeps_its_windows(oracles):
    state = {key: value for key, value in oracles("vitdet").state_dict().items() if "rel_pos" not in key}
    with pytest.raises(ValueError, match="do not show their windows, and a depth of 3 is none of the published"):
        build(state, False)


def test_what_vitdet_adds_starts_where_it_changes_nothing(oracles):
    oracle, image = oracles("vit"), image_of(64)
    model, report = build(oracle.state_dict(), True, "vit", use_rel_pos=True, residual_block_indexes=(1,))
    assert len(report.initialised) == 3 * 2 + 9
    assert "15 not in the source, at their initial values" in str(report)
    assert error_of(found_map(model, image), oracle_map(oracle, "vit", image)) <= LIMIT
    # A file that has some of them must have all.
    state = model.state_dict()
    del state["blocks.1.attn.rel_pos.height"]
    with pytest.raises(ValueError, match=r"missing \(1\): blocks.1.attn.rel_pos.height"):
        load_pretrained(model, state)


def test_heads_have_to_be_known(oracles):
    with pytest.raises(ValueError, match="width 48 is none of the sizes known for them .*give num_heads"):
        vit_from_checkpoint(oracles("vit").state_dict(), "mae")
    model, _ = vit_from_checkpoint(oracles("sam").state_dict())  # read from the relative-position tables
    assert model.arch.num_heads == 4 and model.window_size == 4 and model.global_attn_indexes == (1,)
    model, _ = vit_from_checkpoint(oracles("beit").state_dict())
    assert model.arch.num_heads == 4
