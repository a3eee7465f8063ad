"""Checkpoints of MMPretrain's and MMSegmentation's own VisionTransformer, bare or as the backbone of a model.

Documented as unused: necks, heads and the norm before a head that pools, preprocessors and the copies of an exponential
moving average. The final norm is optional, but for DINOv2. Not read: their BEiT and distilled DeiT. MMDetection's port
of ViTDet has the names of the original: source 'vitdet'.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, has, rename, table_grid
from .naming import OPENMMLAB

_IGNORED = (
    r"(?:neck|head|decode_head|auxiliary_head|data_preprocessor|target_generator)\..*",
    r"(?:teacher|ema)_.*",
    r"mask_token",
    r"ln2\..*",  # before a head that pools
)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Layers with ``ln1``."""
    return has(state, "layers.0.ln1.weight")


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames the backbone."""
    tensors, unused = rename(state, "patch_embed.projection.weight", OPENMMLAB, _IGNORED)
    # With LayerScale it is DINOv2, whose features need the final norm.
    norm = set() if "blocks.0.ls1.gamma" in tensors else {"norm.weight", "norm.bias"}
    optional = frozenset({"cls_token"} | norm)
    return ConvertedWeights(tensors, table_grid(tensors, int("cls_token" in tensors)), unused, optional)


SOURCE = Source("openmmlab", "MMPretrain's or MMSegmentation's VisionTransformer", matches, convert)
