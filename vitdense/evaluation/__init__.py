"""Scoring a bundle, through the device runtime, on the test data of a config."""

from .segmentation import SegmentationScore, evaluate_segmentation, pixel_agreement, score_to_dict

__all__ = ["SegmentationScore", "evaluate_segmentation", "pixel_agreement", "score_to_dict"]
