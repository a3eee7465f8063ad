"""What makes foreign models parts of OpenMMLab's; what subclasses theirs is registered by :mod:`.subclasses`."""

from .transformers_backbone import TransformersBackbone

__all__ = ["TransformersBackbone"]
