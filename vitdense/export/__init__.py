"""Exporting a trained model as a bundle: static ONNX, manifest, reference outputs, parity."""

from .bundle import ExportRequest, export_bundle
from .images import parity_images
from .lowering import lower
from .parity import Parity

__all__ = ["ExportRequest", "Parity", "export_bundle", "lower", "parity_images"]
