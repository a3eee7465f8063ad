"""Data sets and checks of their layout.

``GroupedMaskDataset`` and ``IndexMaskDataset`` subclass one of MMSegmentation's and are imported when a config names
them (see registry.py).
"""

from .checks import check_dataset_files, leaf_datasets

__all__ = ["check_dataset_files", "leaf_datasets"]
