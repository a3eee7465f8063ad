"""State dicts of this project's own ViT, bare or as the backbone of a trained model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source

_PREFIX = "backbone."


def matches(state: Mapping[str, Tensor]) -> bool:
    """Our names, with or without ``backbone.`` in front."""
    return any(key in state for key in ("patch_embed.proj.weight", _PREFIX + "patch_embed.proj.weight")) and any(
        key.endswith("blocks.0.attn.qkv.weight") for key in state
    )


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Takes the backbone out of a model; its neck and heads are ignored, and reported so."""
    ignored = []
    if _PREFIX + "patch_embed.proj.weight" in state:
        ignored = sorted(key for key in state if not key.startswith(_PREFIX))
        state = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
    return ConvertedWeights(dict(state), position_grid=None, ignored=ignored)


SOURCE = Source("vitdense", "a ViT of this project, bare or inside a trained model", matches, convert)
