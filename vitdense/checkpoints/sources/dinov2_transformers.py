"""DINOv2 (arXiv:2304.07193) under the names of transformers' Dinov2Model, without registers.

Files on the hub say ``attention.attention.query`` and ``attention.output.dense``; Dinov2Model of transformers 5 says
``attention.q_proj`` and ``attention.o_proj`` in memory. Both are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .base import ConvertedWeights, Source, square_grid

_EMBEDDINGS = "embeddings."
_RENAME = [
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.patch_embeddings\.projection\.(weight|bias)$", r"patch_embed.proj.\1"),
    (r"^embeddings\.position_embeddings$", "pos_embed.weight"),
    (r"^encoder\.layer\.(\d+)\.(norm[12])\.(weight|bias)$", r"blocks.\1.\2.\3"),
    (r"^encoder\.layer\.(\d+)\.attention\.(?:output\.dense|o_proj)\.(weight|bias)$", r"blocks.\1.attn.proj.\2"),
    (r"^encoder\.layer\.(\d+)\.layer_scale([12])\.lambda1$", r"blocks.\1.ls\2.gamma"),
    (r"^encoder\.layer\.(\d+)\.mlp\.(fc[12])\.(weight|bias)$", r"blocks.\1.mlp.\2.\3"),
    (r"^layernorm\.(weight|bias)$", r"norm.\1"),
]
_QKV = re.compile(r"^encoder\.layer\.(\d+)\.attention\.(?:attention\.)?(query|key|value|[qkv]_proj)\.(weight|bias)$")
_PART = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
_IGNORED = ("embeddings.mask_token",)  # used in pre-training only


def matches(state: Mapping[str, Tensor]) -> bool:
    """Whether the keys are those of Dinov2Model, perhaps behind ``dinov2.`` or ``backbone.``."""
    return any(key.endswith("encoder.layer.0.layer_scale1.lambda1") for key in state)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Joins query, key and value into one qkv and renames the rest; a mask token is ignored."""
    prefix = _prefix(state)
    tensors: dict[str, Tensor] = {}
    qkv: dict[tuple[str, str], dict[str, Tensor]] = {}
    ignored: list[str] = []
    for full_key, value in state.items():
        key = full_key.removeprefix(prefix)
        if match := _QKV.match(key):
            qkv.setdefault((match[1], match[3]), {})[_PART.get(match[2], match[2])] = value
            continue
        if key in _IGNORED:
            ignored.append(full_key)
            continue
        # A key that no rule knows keeps its name: the strict load then names it as unused.
        name = next((re.sub(rule, to, key) for rule, to in _RENAME if re.match(rule, key)), full_key)
        tensors[name] = value
    for (block, kind), parts in qkv.items():
        if missing := {"query", "key", "value"} - set(parts):
            raise ValueError(f"encoder.layer.{block}.attention lacks {kind} of {sorted(missing)}")
        tensors[f"blocks.{block}.attn.qkv.{kind}"] = torch.cat([parts["query"], parts["key"], parts["value"]])
    if "pos_embed.weight" not in tensors:
        raise ValueError("these weights lack embeddings.position_embeddings, so they are not DINOv2's")
    grid = square_grid(tensors["pos_embed.weight"].shape[1] - 1, "embeddings.position_embeddings")
    # Detectors after ViTDet run without a cls token; the final norm belongs to DINOv2's features and is not optional.
    return ConvertedWeights(tensors, grid, ignored, optional=frozenset({"cls_token"}))


def _prefix(state: Mapping[str, Tensor]) -> str:
    """What stands before transformers' names, e.g. ``dinov2.`` in a classifier."""
    name = _EMBEDDINGS + "cls_token"
    found = [key.removesuffix(name) for key in state if key.endswith(name)]
    if len(found) != 1:
        raise ValueError(f"these weights hold {len(found)} tensors named {name}, so they are not a DINOv2 backbone")
    return found[0]


SOURCE = Source("dinov2-transformers", "DINOv2 under transformers' names", matches, convert)
