"""Data sets and checks of their layout."""

import importlib.util

from .checks import check_dataset_files

if importlib.util.find_spec("mmseg"):  # the data set subclasses one of MMSegmentation's
    from .grouped import GroupedMaskDataset

    __all__ = ["GroupedMaskDataset", "check_dataset_files"]
else:
    __all__ = ["check_dataset_files"]
