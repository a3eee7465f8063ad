"""Data sets and checks of their layout.

``GroupedMaskDataset`` subclasses one of MMSegmentation's and is imported when a config names it (see registry.py).
"""

from .checks import check_dataset_files

__all__ = ["check_dataset_files"]
