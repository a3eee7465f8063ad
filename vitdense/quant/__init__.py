"""Quantizing a bundle for a target, with a receipt."""

from .quantize import TARGETS, QuantizeRequest, quantize_openvino
from .receipt import read_receipt
from .recipes import OpenVINORecipe

__all__ = ["TARGETS", "OpenVINORecipe", "QuantizeRequest", "quantize_openvino", "read_receipt"]
