"""Backbone and neck: torch and mmengine only."""

from .distiller import FeatureDistiller
from .norm import LayerNorm2d
from .position import PositionEmbedding
from .pyramid import SimpleFeaturePyramid
from .sizes import ARCHS, Arch, resolve_arch
from .vit import ViT
from .windows import TokenLayout

__all__ = [
    "ARCHS",
    "Arch",
    "FeatureDistiller",
    "LayerNorm2d",
    "PositionEmbedding",
    "SimpleFeaturePyramid",
    "TokenLayout",
    "ViT",
    "resolve_arch",
]
