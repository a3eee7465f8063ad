"""Whether the files that a config's data sets name are there, before minutes are spent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

_LAYOUTS = {
    "CocoDataset": """
  {root}/
    annotations/instances_train2017.json, instances_val2017.json
    train2017/*.jpg
    val2017/*.jpg
Download: https://cocodataset.org/#download (2017 Train images, Val images, Train/Val annotations).""",
    "XMLDataset": """
  {root}/
    JPEGImages/*.jpg
    Annotations/*.xml
    ImageSets/Main/train.txt, val.txt, test.txt""",
    "GroupedMaskDataset": """
  {root}/
    images/SPLIT/*.jpg
    masks/SPLIT/*.png      (index masks of raw ids)
    GROUPING.json          ({{'classes': [...], 'category_to_class': {{'raw id': class}}}})""",
}
_LAYOUTS["VOCDataset"] = _LAYOUTS["XMLDataset"]
_LAYOUTS["CocoMetric"] = _LAYOUTS["CocoDataset"]
_FILE_KEYS = ("ann_file", "grouping_file")
_READ_BYTES = 100_000_000  # of annotations that are looked into; larger ones are COCO itself and the like


def check_dataset_files(cfg: Config, phases: Sequence[str]) -> None:
    """Checks that the files and folders of the data sets (and evaluators) exist.

    Args:
        cfg: A config of MMDetection or MMSegmentation.
        phases: Among 'train', 'val' and 'test'.

    Raises:
        ValueError: Something is missing; the message says where it was looked for, how data are laid out, and how to
            point the config elsewhere. Or an annotation file in COCO's format knows none of the classes, or has no
            masks where they are asked for.
    """
    for phase in phases:
        loader, evaluator = cfg.get(f"{phase}_dataloader"), cfg.get(f"{phase}_evaluator")
        entries = [] if loader is None else list(leaf_datasets(loader["dataset"], f"{phase}_dataloader.dataset"))
        for number, metric in enumerate(evaluator if isinstance(evaluator, list) else [evaluator] if evaluator else []):
            entries.append((f"{phase}_evaluator" + (f".{number}" if isinstance(evaluator, list) else ""), metric))
        for path, entry in entries:
            missing = [str(file) for file in _files(entry) if not file.exists()]
            if missing:
                raise ValueError(_message(path, entry, missing))
            if str(entry.get("type", "")).rsplit(".", 1)[-1] == "CocoDataset" and entry.get("ann_file"):
                _check_coco_annotations(path, entry)


def _check_coco_annotations(path: str, entry: Any) -> None:
    """Finds what ends in an error of numpy or of a worker otherwise."""
    file = Path(entry.get("data_root") or "") / entry["ann_file"]
    if not file.is_file() or file.stat().st_size > _READ_BYTES:
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        names = [category["name"] for category in content["categories"]]
        annotations = content["annotations"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} of {path} is no annotation file in COCO's format ({type(error).__name__}: {error}); expected an "
            "object with images, annotations and categories"
        ) from None
    classes = (entry.get("metainfo") or {}).get("classes")
    if classes is not None and not set(classes) & set(names):
        raise ValueError(
            f"none of the {len(classes)} classes of {path}.metainfo ({', '.join(map(str, classes[:5]))}, ...) is "
            f"among those of {file} ({', '.join(names[:5])}, ...); set metainfo=dict(classes=...) and num_classes"
        )
    loads = [step for step in entry.get("pipeline") or () if step.get("with_mask")]
    if loads and annotations and not any("segmentation" in item for item in annotations):
        raise ValueError(
            f"{file} has boxes and no masks ('segmentation'), which the pipeline of {path} asks for; take a "
            "detector of boxes, configs/vitdet/vits-dinov2_gfl_small-coco.py for instance"
        )


def leaf_datasets(entry: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Leaves of nested data sets (wrappers hold theirs under ``dataset`` or ``datasets``), with their config path."""
    if "dataset" in entry:
        yield from leaf_datasets(entry["dataset"], f"{path}.dataset")
    elif "datasets" in entry:
        for number, item in enumerate(entry["datasets"]):
            yield from leaf_datasets(item, f"{path}.datasets.{number}")
    else:
        yield path, entry


def _files(entry: Any) -> Iterator[Path]:
    if "://" in str(entry.get("data_root")):
        return  # an object store; MMEngine's file backend reads it
    root = Path(entry.get("data_root") or "")
    for key in _FILE_KEYS:
        if entry.get(key):
            yield root / entry[key]
    for prefix in (entry.get("data_prefix") or {}).values():
        if prefix is not None:
            yield root / prefix


def _message(path: str, entry: Any, missing: list[str]) -> str:
    kind = str(entry.get("type", "")).rsplit(".", 1)[-1]
    option = f"{path}.data_root=/path/to/data" if "dataset" in path else f"{path}.ann_file=/path/to/annotations.json"
    # An evaluator names one file: <root>/annotations/<file>.
    root = str(entry.get("data_root") or Path(missing[0]).parent.parent).rstrip("/")
    text = f"the data of {path} ({kind}) are not there: {', '.join(missing)} (looked for in {Path(root).resolve()})."
    if kind in _LAYOUTS:
        text += f"\nExpected layout:{_LAYOUTS[kind].format(root=root)}"
    return text + (
        "\nPut (or link) the data there, set the environment variable VITDENSE_DATA to the folder that holds "
        f"{Path(root).name}/, or override the paths, e.g. --cfg-options {option}"
    )
