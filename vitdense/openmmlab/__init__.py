"""What makes foreign models parts of OpenMMLab's, or subclasses theirs."""

from .transformers_backbone import TransformersBackbone

__all__ = ["TransformersBackbone"]
