"""Registers what subclasses parts of MMDetection and MMSegmentation, as far as these are installed."""

from importlib.util import find_spec

if find_spec("mmdet") is not None:
    from . import cascade_roi_head, federated_loss  # noqa: F401
