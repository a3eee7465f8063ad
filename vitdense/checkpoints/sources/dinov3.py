"""DINOv3 (arXiv:2508.10104), its ViTs, original and transformers' names.

Rotary positions, registers, LayerScale, a gated MLP in S+ and H+, no bias on the key (the original masks it, here it is
zero) and LayerNorms of eps 1e-5. The final norm belongs to the features and is not optional. The rotary periods follow
from the base 100 and the width of a head; the published files store them rounded to bfloat16 and the original uses
those, transformers and this project the unrounded ones. Documented as unused: the mask token, the stored periods, the
mask of the key bias, the norms of local crops and of cls tokens, and heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .base import HEADS, ConvertedWeights, Source, has, rename, require_features
from .naming import ORIGINAL, TRANSFORMERS, TRANSFORMERS_HEADS, is_original, is_transformers, join_mlp

ROTARY_BASE = 100.0
_RULES = [
    (r"storage_tokens", "register_tokens"),
    (r"(blocks\.\d+\.mlp)\.w1\.(weight|bias)", r"\1.gate.\2"),
    (r"(blocks\.\d+\.mlp)\.w2\.(weight|bias)", r"\1.up.\2"),
    (r"(blocks\.\d+\.mlp)\.w3\.(weight|bias)", r"\1.down.\2"),
]
_IGNORED = (
    r"(?:embeddings\.)?mask_token",
    r"rope_embed(?:dings)?\..*",
    r"blocks\.\d+\.attn\.qkv\.bias_mask",
    r"(?:local_cls|cls)_norm\..*",
    r"(?:dino|ibot)_head\..*",
    *TRANSFORMERS_HEADS,
)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Rotary periods, storage tokens or a masked key bias; in transformers a bare patch convolution."""
    original = is_original(state) and has(state, "rope_embed.periods", "storage_tokens", "blocks.0.attn.qkv.bias_mask")
    return original or (is_transformers(state) and has(state, "embeddings.patch_embeddings.weight"))


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames, zeroes the key bias and joins the gate of the MLP."""
    original = is_original(state)
    anchor = "patch_embed.proj.weight" if original else "embeddings.patch_embeddings.weight"
    masks = {key.removesuffix("_mask"): value for key, value in state.items() if key.endswith("qkv.bias_mask")}
    # Where the mask says so there is no bias, whatever is stored (NaN in the published files).
    for key, mask in masks.items():
        if key in state and mask.shape != state[key].shape:
            raise ValueError(f"{key}_mask is {tuple(mask.shape)}, the bias {tuple(state[key].shape)}")
    state = {key: value.where(masks[key] == 1, 0) if key in masks else value for key, value in state.items()}
    heads = _heads_of_periods(state, anchor)
    rules = _RULES + ORIGINAL if original else TRANSFORMERS
    tensors, unused = rename(state, anchor, rules, _IGNORED, no_key_bias=True)
    tensors = join_mlp(tensors)
    require_features(tensors, "DINOv3")
    if original and not masks:
        for name in [name for name in tensors if re.fullmatch(r"blocks\.\d+\.attn\.qkv\.bias", name)]:
            width = len(tensors[name]) // 3
            tensors[name] = tensors[name].clone()
            tensors[name][width : 2 * width] = 0
    return ConvertedWeights(tensors, None, unused, frozenset({"cls_token", "register_tokens"}), num_heads=heads)


def _heads_of_periods(state: Mapping[str, Tensor], anchor: str) -> int | None:
    """Heads of the width that the stored periods are for (four channels each); None where none are stored.

    Raises:
        ValueError: Other periods than those of the base; bfloat16 rounds by up to 0.4 %.
    """
    key = next((key for key in state if key.endswith("rope_embed.periods")), None)
    if key is None:
        return None
    periods = state[key].float()
    dims = next(len(value) for name, value in state.items() if name.endswith(anchor))
    expected = ROTARY_BASE ** (torch.arange(len(periods)) / max(len(periods), 1))
    if periods.ndim != 1 or not len(periods) or not torch.allclose(periods, expected, rtol=5e-3, atol=0):
        raise ValueError(
            f"{key} is {periods.tolist()}, expected the periods of the base {ROTARY_BASE:g}: another rotary "
            "embedding than DINOv3's is not read"
        )
    if dims % (4 * len(periods)):
        raise ValueError(f"{key} has {len(periods)} periods, for heads of {4 * len(periods)}, but the width is {dims}")
    return dims // (4 * len(periods))


SOURCE = Source(
    "dinov3",
    "DINOv3's ViT",
    matches,
    convert,
    norm_eps=1e-5,
    heads={**HEADS, 1280: 20, 4096: 32},  # H+ has heads of 64, the 7B of 128
    options=dict(pos_embed="rotary", rotary_base=ROTARY_BASE),
)
