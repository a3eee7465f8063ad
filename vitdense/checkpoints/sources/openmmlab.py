"""Checkpoints of MMPretrain's and MMSegmentation's ViTs, bare or as the backbone of a model.

Their VisionTransformer (ViT, DeiT III, MAE, DINOv2 with a plain or a gated MLP ...), distilled DeiT and BEiT. Names are
turned into those of the original repositories and converted as these are. Tables are resized bicubically without offset
or filter, as MMPretrain does. MMDetection's port of ViTDet has the names of the original: source 'vitdet'.

Documented as unused: necks, heads and the norm before a head that pools, preprocessors and the copies of an exponential
moving average. The final norm is optional, but for DINOv2.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from torch import Tensor

from . import beit, deit, dinov2, vit
from .base import ConvertedWeights, Source, has

_IGNORED = (
    r"(?:neck|head|decode_head|auxiliary_head|data_preprocessor|target_generator)\..*",
    r"(?:teacher|ema)_.*",
    r"(?:.*\.)?mask_token",
    r"(?:backbone\.)?ln2\..*",  # before a head that pools
)
_LEAF = r"(weight|bias)$"
_LAYER = r"\blayers\.(\d+)\."
_TO_ORIGINAL = [
    (rf"\bpatch_embed\.projection\.{_LEAF}", r"patch_embed.proj.\1"),
    (rf"{_LAYER}ln([12])\.{_LEAF}", r"blocks.\1.norm\2.\3"),
    (rf"{_LAYER}attn\.(qkv|proj)\.{_LEAF}", r"blocks.\1.attn.\2.\3"),
    (rf"{_LAYER}attn\.attn\.in_proj_{_LEAF}", r"blocks.\1.attn.qkv.\2"),
    (rf"{_LAYER}attn\.attn\.out_proj\.{_LEAF}", r"blocks.\1.attn.proj.\2"),
    (rf"{_LAYER}ffn\.layers\.0\.0\.{_LEAF}", r"blocks.\1.mlp.fc1.\2"),
    (rf"{_LAYER}ffn\.layers\.1\.{_LEAF}", r"blocks.\1.mlp.fc2.\2"),
    (rf"{_LAYER}ffn\.(w12|w3)\.{_LEAF}", r"blocks.\1.mlp.\2.\3"),
    (rf"{_LAYER}attn\.gamma1\.weight$", r"blocks.\1.ls1.gamma"),
    (rf"{_LAYER}ffn\.gamma2\.weight$", r"blocks.\1.ls2.gamma"),
    (rf"{_LAYER}(gamma_[12]|attn\.(?:[qv]_bias|relative_position_(?:bias_table|index)))$", r"blocks.\1.\2"),
    (rf"\bln1\.{_LEAF}", r"norm.\1"),
]


def matches(state: Mapping[str, Tensor]) -> bool:
    """Layers with ``ln1``."""
    return has(state, "layers.0.ln1.weight")


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames to the original repository's names, and converts these.

    Raises:
        ValueError: No such names, or two that mean the same.
    """
    if not matches(state):
        raise ValueError("no weight ends in layers.0.ln1.weight, so they are not MMPretrain's or MMSegmentation's ViT")
    unused = [key for key in state if any(re.fullmatch(pattern, key) for pattern in _IGNORED)]
    theirs: dict[str, str] = {}
    for key in state:
        if key not in unused:
            name = _original_name(key)
            if name in theirs:
                raise ValueError(f"{theirs[name]} and {key} of these weights are both {name} of a ViT")
            theirs[name] = key
    renamed = {name: state[key] for name, key in theirs.items()}
    converted = _convert_renamed(renamed)
    return dataclasses.replace(converted, ignored=unused + [theirs[name] for name in converted.ignored])


def _convert_renamed(state: Mapping[str, Tensor]) -> ConvertedWeights:
    if beit.matches(state):
        return beit.convert(state)
    if deit.matches(state):
        return deit.convert(state)
    if not has(state, "blocks.0.ls1.gamma"):
        return vit.convert_plain(state)
    # LayerScale of a VisionTransformer: DINOv2, whose features need the final norm.
    return dataclasses.replace(dinov2.convert(state), interpolate_offset=0.0)


def _original_name(key: str) -> str:
    for pattern, replacement in _TO_ORIGINAL:
        name, count = re.subn(pattern, replacement, key)
        if count:
            return name
    return key


SOURCE = Source("openmmlab", "a ViT, DeiT or BEiT of MMPretrain or MMSegmentation", matches, convert)
