"""What makes foreign models parts of OpenMMLab's; what subclasses theirs is registered by :mod:`.subclasses`."""

from .distiller import FeatureDistiller
from .transformers_backbone import TransformersBackbone

__all__ = ["FeatureDistiller", "TransformersBackbone"]
