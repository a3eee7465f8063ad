"""State dicts of this project's own ViT, bare or as the backbone of a trained model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, has
from .naming import is_original

_PREFIX = "backbone."
# Of families without a position table: DINOv3 and BEiT.
_FOREIGN = (
    "rope_embed.periods",
    "storage_tokens",
    "blocks.0.gamma_1",
    "blocks.0.attn.q_bias",
    "blocks.0.attn.relative_position_bias_table",
)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Our names, with or without ``backbone.`` in front: those of the original repositories but for positions."""
    if not any(prefix + "patch_embed.proj.weight" in state for prefix in ("", _PREFIX)) or not is_original(state):
        return False
    if has(state, "pos_embed.weight", "pos_embed.rows", "blocks.0.attn.rel_pos.height", "blocks.0.attn.rel_pos.table"):
        return True
    return not has(state, "pos_embed", *_FOREIGN)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Takes the backbone out of a model; its neck and heads are ignored, and reported so."""
    ignored = []
    if _PREFIX + "patch_embed.proj.weight" in state:
        ignored = sorted(key for key in state if not key.startswith(_PREFIX))
        state = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
    return ConvertedWeights(dict(state), position_grid=None, ignored=ignored)


# No table of heads: the weights may be of any family, and the H sizes of two of them differ in it.
SOURCE = Source("vitdense", "a ViT of this project, bare or inside a trained model", matches, convert, heads={})
