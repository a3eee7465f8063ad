"""Semantic segmentation with index masks whose raw ids are grouped into classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..registry import DATASETS
from .label_map import IGNORED, LabelMapDataset


@DATASETS.register_module()
class GroupedMaskDataset(LabelMapDataset):
    """MMSegmentation's folder data set, with a JSON file that groups raw mask ids into classes.

    The file holds ``{"classes": [name, ...], "category_to_class": {"raw id": name, ...}}``. Raw ids that it does not
    name, id 0 among them, are ignored in training and evaluation.

    Args:
        grouping_file: The JSON file, relative to ``data_root``.
        data_root: Root of the data set. Defaults to ''.
        metainfo: ``palette`` (RGB per class) and ``classes``; with classes given, the file has to list the same. So a
            config, and a bundle exported from it, knows them without the data. Defaults to None.
        **kwargs: See ``mmseg.datasets.BaseSegDataset``.

    Raises:
        FileNotFoundError: No such grouping file.
        ValueError: The file lacks a key, names a class not in its list, or lists other classes than ``metainfo``.
    """

    def __init__(
        self, grouping_file: str, data_root: str = "", metainfo: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        classes, label_map = read_grouping(Path(data_root) / grouping_file)
        declared = (metainfo or {}).get("classes", classes)
        if tuple(declared) != classes:
            raise ValueError(f"{grouping_file} has the classes {classes}, metainfo of the config {tuple(declared)}")
        super().__init__(label_map, data_root=data_root, metainfo={**(metainfo or {}), "classes": classes}, **kwargs)


def read_grouping(path: Path) -> tuple[tuple[str, ...], dict[int, int]]:
    """Reads a grouping file.

    Returns:
        The class names, and the class index of every raw id from 0 to 255 (255 where it is ignored).
    """
    if not path.is_file():
        raise FileNotFoundError(f"grouping file {path} does not exist")
    try:
        content = json.loads(path.read_text())
        classes, groups = tuple(content["classes"]), content["category_to_class"]
        indices = {int(raw): classes.index(name) for raw, name in groups.items()}
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: {error!r}; expected {{'classes': [names], 'category_to_class': {{'raw id': name}}}}"
        ) from None
    return classes, {raw: indices.get(raw, IGNORED) for raw in range(256)}
