"""Naming schemes that several sources share: of the original repositories and of transformers.

Rules for :func:`.base.rename`. Parts of a gated MLP are named ``gate``, ``up`` and ``down`` by the rules and joined by
:func:`join_mlp`, because transformers calls the layers of a plain MLP ``up`` and ``down`` too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .base import has

_LEAF = r"(weight|bias)"

# timm and the original repositories of MAE, DeiT, DINO and DINOv2: what our ViT's names follow.
ORIGINAL = [
    (r"(cls_token|register_tokens)", r"\1"),
    (r"pos_embed", "pos_embed.weight"),
    (rf"patch_embed\.proj\.{_LEAF}", r"patch_embed.proj.\1"),
    (rf"(blocks\.\d+\.(?:norm[12]|attn\.qkv|attn\.proj|mlp\.fc[12]))\.{_LEAF}", r"\1.\2"),
    (r"(blocks\.\d+\.ls[12]\.gamma)", r"\1"),
    (rf"norm\.{_LEAF}", r"norm.\1"),
]

_LAYER = r"(?:encoder\.layer|model\.layer|layers?)\.(\d+)\."
# transformers: names of the files on the hub, and those that version 5 has in memory.
TRANSFORMERS = [
    (r"embeddings\.(cls_token|register_tokens)", r"\1"),
    (r"embeddings\.position_embeddings", "pos_embed.weight"),
    (rf"embeddings\.patch_embeddings\.(?:projection\.)?{_LEAF}", r"patch_embed.proj.\1"),
    (rf"{_LAYER}(?:layernorm_before|norm1)\.{_LEAF}", r"blocks.\1.norm1.\2"),
    (rf"{_LAYER}(?:layernorm_after|norm2)\.{_LEAF}", r"blocks.\1.norm2.\2"),
    (rf"{_LAYER}attention\.(?:attention\.query|q_proj)\.{_LEAF}", r"blocks.\1.attn.q.\2"),
    (rf"{_LAYER}attention\.(?:attention\.key|k_proj)\.{_LEAF}", r"blocks.\1.attn.k.\2"),
    (rf"{_LAYER}attention\.(?:attention\.value|v_proj)\.{_LEAF}", r"blocks.\1.attn.v.\2"),
    (rf"{_LAYER}attention\.(?:output\.dense|o_proj)\.{_LEAF}", r"blocks.\1.attn.proj.\2"),
    (rf"{_LAYER}(?:intermediate\.dense|mlp\.fc1)\.{_LEAF}", r"blocks.\1.mlp.fc1.\2"),
    (rf"{_LAYER}(?:output\.dense|mlp\.fc2)\.{_LEAF}", r"blocks.\1.mlp.fc2.\2"),
    (rf"{_LAYER}layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (rf"{_LAYER}mlp\.weights_in\.{_LEAF}", r"blocks.\1.mlp.w12.\2"),
    (rf"{_LAYER}mlp\.weights_out\.{_LEAF}", r"blocks.\1.mlp.w3.\2"),
    (rf"{_LAYER}mlp\.(gate|up|down)_proj\.{_LEAF}", r"blocks.\1.mlp.\2.\3"),
    (rf"(?:layernorm|norm)\.{_LEAF}", r"norm.\1"),
]
# Heads of transformers' task models, and the pooler that some base models carry.
TRANSFORMERS_HEADS = (r"(?:.*\.)?pooler\..*", r"(?:cls_|distillation_)?classifier\..*", r"decode_head\..*")


def is_original(state: Mapping[str, Tensor]) -> bool:
    """Whether blocks are named as in the original repositories."""
    return has(state, "blocks.0.attn.qkv.weight")


def is_transformers(state: Mapping[str, Tensor]) -> bool:
    """Whether blocks are named as in transformers, with separate q, k and v."""
    pattern = re.compile(rf"(?:.*\.)?{_LAYER}attention\.(?:attention\.query|q_proj)\.weight")
    return any(pattern.fullmatch(key) for key in state if not key.startswith("decoder."))


def join_mlp(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Turns ``gate``, ``up`` and ``down`` into ``w12`` and ``w3``; without a gate into ``fc1`` and ``fc2``."""
    joined = dict(tensors)
    for name in tensors:
        match = re.fullmatch(r"(blocks\.\d+\.mlp)\.up\.(weight|bias)", name)
        if match is None:
            continue
        mlp, kind = match[1], match[2]
        up, down = joined.pop(name), joined.pop(f"{mlp}.down.{kind}", None)
        gate = joined.pop(f"{mlp}.gate.{kind}", None)
        joined[f"{mlp}.fc1.{kind}" if gate is None else f"{mlp}.w12.{kind}"] = (
            up if gate is None else torch.cat([gate, up])
        )
        if down is not None:
            joined[f"{mlp}.fc2.{kind}" if gate is None else f"{mlp}.w3.{kind}"] = down
    return joined
