"""Plain ViTs that share their names: supervised ones of timm (AugReg), DeiT without its token, MAE's encoder, DINO.

Which of them a file is cannot be seen, and need not be unless the position table is resized at import: timm filters
(antialias), MAE and DeiT do not, and DINO adds 0.1 to the target size. Their LayerNorms have eps 1e-6 (transformers'
ports of them say 1e-12 in their configs, a difference below rounding).

Documented as unused: classification heads, the norm before a head that pools (``fc_norm``), ``pre_logits``. The final
norm is optional, because ViTDet runs without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, add_cls_position, rename, table_grid
from .naming import ORIGINAL, TRANSFORMERS, TRANSFORMERS_HEADS, is_original, is_transformers

_HEADS = (r"head(?:_dist)?\..*", r"fc_norm\..*", r"pre_logits\..*", *TRANSFORMERS_HEADS)
OPTIONAL = frozenset({"cls_token", "norm.weight", "norm.bias"})


def matches(state: Mapping[str, Tensor]) -> bool:
    """Any file with these names; families that can be told apart are asked first."""
    return is_original(state) or is_transformers(state)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames; the position table is resized with a filter, as timm does."""
    return convert_plain(state, ignored=_HEADS, antialias=True)


def convert_plain(
    state: Mapping[str, Tensor],
    *,
    ignored: tuple[str, ...] = _HEADS,
    offset: float = 0.0,
    antialias: bool = False,
) -> ConvertedWeights:
    """Renames a plain ViT of either naming scheme.

    Args:
        state: By the source's name.
        ignored: Patterns of unused names, as they stand behind the backbone's prefix or in full.
        offset: Convention of the position table.
        antialias: Likewise.
    """
    original = is_original(state)
    anchor = "patch_embed.proj.weight" if original else "embeddings.patch_embeddings.projection.weight"
    tensors, unused = rename(state, anchor, ORIGINAL if original else TRANSFORMERS, ignored)
    if "pos_embed.weight" not in tensors:
        raise ValueError("these weights have no position table, which every plain ViT of these families has")
    tensors = add_cls_position(tensors)
    grid = table_grid(tensors, int("cls_token" in tensors))
    return ConvertedWeights(tensors, grid, unused, OPTIONAL, offset, antialias)


SOURCE = Source(
    "vit",
    "a plain ViT under timm's or transformers' names (AugReg, DeiT, MAE's encoder and DINO share them)",
    matches,
    convert,
    shared_with=("deit", "mae", "dino"),
)
