"""What plugs into MMEngine's training loop."""

from .distributed import wrap_blocks
from .feature_cache import FeatureCacheHook
from .layer_decay import ViTLayerDecayOptimizerConstructor

__all__ = ["FeatureCacheHook", "ViTLayerDecayOptimizerConstructor", "wrap_blocks"]
