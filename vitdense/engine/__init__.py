"""What plugs into MMEngine's training loop."""

from .layer_decay import ViTLayerDecayOptimizerConstructor

__all__ = ["ViTLayerDecayOptimizerConstructor"]
