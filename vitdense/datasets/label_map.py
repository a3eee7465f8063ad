"""What data sets share whose masks hold other ids than those of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmseg.datasets import BaseSegDataset

IGNORED = 255


class LabelMapDataset(BaseSegDataset):
    """MMSegmentation's folder data set with a map from the ids of the masks to class indices.

    Args:
        label_map: Class index of every raw id from 0 to 255, 255 where it is ignored.
        **kwargs: See ``mmseg.datasets.BaseSegDataset``.
    """

    def __init__(self, label_map: Mapping[int, int], **kwargs: Any) -> None:
        lazy_init = kwargs.pop("lazy_init", False)
        super().__init__(lazy_init=True, **kwargs)
        self.label_map = label_map
        self._metainfo["label_map"] = label_map
        if not lazy_init:
            self.full_init()
