"""Quantizing a bundle for a target, with a receipt."""

from .quantize import QuantizeRequest, quantize
from .recipes import OpenVINORecipe, TensorRTRecipe
from .targets import TARGETS

__all__ = ["TARGETS", "OpenVINORecipe", "QuantizeRequest", "TensorRTRecipe", "quantize"]
