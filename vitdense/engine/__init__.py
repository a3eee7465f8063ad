"""What plugs into MMEngine's training loop."""

from .distributed import FullyShardedDataParallel, wrap_blocks
from .feature_cache import FeatureCacheHook
from .layer_decay import ViTLayerDecayOptimizerConstructor

__all__ = ["FullyShardedDataParallel", "FeatureCacheHook", "ViTLayerDecayOptimizerConstructor", "wrap_blocks"]
