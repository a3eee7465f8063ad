"""DINO (arXiv:2104.14294): the backbone, or the student or teacher of a training.

Documented as unused: the projection head. The position table is resized bicubically with 0.1 added to the target size
(the original's ``interpolate_pos_encoding``).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from . import vit
from .base import ConvertedWeights, Source
from .naming import TRANSFORMERS_HEADS

OFFSET = 0.1
_IGNORED = (r"(?:module\.)?head\..*", *TRANSFORMERS_HEADS)


def matches(state: Mapping[str, Tensor]) -> bool:
    """A plain ViT with DINO's head beside it; a backbone alone looks like any other plain ViT."""
    return vit.matches(state) and any("head.last_layer." in key or "head.mlp.0." in key for key in state)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Takes the backbone."""
    return vit.convert_plain(state, ignored=_IGNORED, offset=OFFSET)


SOURCE = Source("dino", "DINO's ViT", matches, convert)
