"""Semantic segmentation with index masks in which some ids mean that nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..registry import DATASETS
from .label_map import IGNORED, LabelMapDataset


@DATASETS.register_module()
class IndexMaskDataset(LabelMapDataset):
    """MMSegmentation's folder data set for masks of class indices, with further ids that are ignored.

    Args:
        ignored_ids: Ids of the masks that are left out of training and evaluation, e.g. 11 for CamVid's void.
        metainfo: ``classes``, in the order of their ids, and ``palette``.
        data_root: Root of the data set. Defaults to ''.
        **kwargs: See ``mmseg.datasets.BaseSegDataset``.

    Raises:
        ValueError: An ignored id is that of a class, or no id of an 8-bit mask.
    """

    def __init__(
        self, ignored_ids: Sequence[int], metainfo: dict[str, Any], data_root: str = "", **kwargs: Any
    ) -> None:
        count = len(metainfo.get("classes", ()))
        if wrong := [i for i in ignored_ids if not count <= i <= 255]:
            raise ValueError(f"ignored_ids={wrong} must lie in {count}..255, behind the ids of the {count} classes")
        label_map = {i: IGNORED if i in ignored_ids else i for i in range(256)}
        super().__init__(label_map, data_root=data_root, metainfo=metainfo, **kwargs)
