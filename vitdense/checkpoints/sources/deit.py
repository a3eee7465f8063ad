"""DeiT (arXiv:2012.12877), with or without the distillation token.

The distillation token runs along as a register token: its position, a constant, is added to it at import, so that the
result is the same. DeiT III (arXiv:2204.07118) has LayerScale and no position for its cls token. Documented as unused:
both heads. The final norm is optional, as for every plain ViT. The position table is resized bicubically without offset
or filter, as in the original's fine-tuning at 384 pixels.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from . import vit
from .base import ConvertedWeights, Source, has, table_grid

_TOKENS = ("dist_token", "embeddings.distillation_token")


def matches(state: Mapping[str, Tensor]) -> bool:
    """A distillation token, or DeiT III's LayerScale with a joint bias; else DeiT looks like any other plain ViT."""
    third = has(state, "blocks.0.gamma_1") and has(state, "blocks.0.attn.qkv.bias")
    return vit.matches(state) and (third or has(state, *_TOKENS))


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames, and folds the distillation token's position into the token."""
    state = {re.sub(r"(blocks\.\d+)\.gamma_([12])$", r"\1.ls\2.gamma", key): value for key, value in state.items()}
    token = next((key for key in state if key.endswith(_TOKENS)), None)
    if token is None:
        return vit.convert_plain(state)
    table_key = next((key for key in state if key.endswith(("pos_embed", "embeddings.position_embeddings"))), None)
    if table_key is None:
        raise ValueError("these weights have a distillation token but no position table, so they are not DeiT's")
    table = state[table_key]
    if state[token].shape != table[:, :1].shape:
        raise ValueError(f"{token} is {tuple(state[token].shape)}, expected {tuple(table[:, :1].shape)}")
    rest = {key: value for key, value in state.items() if key != token}
    rest[table_key] = torch.cat([table[:, :1], table[:, 2:]], dim=1)
    converted = vit.convert_plain(rest)
    tensors = {**converted.tensors, "register_tokens": state[token] + table[:, 1:2]}
    return dataclasses.replace(
        converted,
        tensors=tensors,
        position_grid=table_grid(tensors),
        optional=vit.OPTIONAL | {"register_tokens"},
    )


SOURCE = Source("deit", "DeiT, distilled or not", matches, convert)
