"""Scoring a bundle, through the device runtime, on the test data of a config."""

from .evaluate import agreement_on, evaluate, open_data
from .score import AGREEMENTS, LABELS, MAIN_MEASURES, Score, largest_drop

__all__ = [
    "AGREEMENTS",
    "LABELS",
    "MAIN_MEASURES",
    "Score",
    "agreement_on",
    "evaluate",
    "largest_drop",
    "open_data",
]
