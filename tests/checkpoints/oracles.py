"""transformers' models with random parameters, their state dicts under the original names, and our ViT from these."""

import functools
import re

import pytest
import torch

from vitdense.checkpoints import vit_from_checkpoint

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


@functools.cache
def oracle_of(name):
    """The oracle of a case, its parameters drawn once."""
    return draw(CASES[name][0]())


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
