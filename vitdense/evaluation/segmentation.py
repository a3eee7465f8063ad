"""mIoU of a bundle on the test data of a config, with the device's own preprocessing and postprocessing."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mmengine.config import Config
from mmengine.registry import TRANSFORMS

from deploy.files import sha256_of
from deploy.predictor import Predictor

from ..engine.build import build_test_dataset
from .score import Score

ClassMap = npt.NDArray[Any]
_IGNORED = 255


class SegmentationData:
    """Image paths and ground truth of a config's test data.

    Args:
        cfg: A config of MMSegmentation.
    """

    def __init__(self, cfg: Config) -> None:
        self.dataset = build_test_dataset(cfg)
        step = next((step for step in _pipeline(cfg) if step["type"] == "LoadAnnotations"), {"type": "LoadAnnotations"})
        self._load = TRANSFORMS.build(dict(step))

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def classes(self) -> Sequence[str]:
        """Class names, by index."""
        classes: Sequence[str] = self.dataset.metainfo["classes"]
        return classes

    def paths(self) -> list[Path]:
        """The images."""
        return [Path(self.dataset.get_data_info(index)["img_path"]) for index in range(len(self))]

    def subset(self, places: Sequence[int]) -> SegmentationData:
        """The same data with some of the images."""
        part = copy.copy(self)
        part.dataset = self.dataset.get_subset(list(places))
        return part

    def fingerprint(self) -> str:
        """A hash of classes and labels: other labels give other scores."""
        masks = [sha256_of(self.dataset.get_data_info(index)["seg_map_path"]) for index in range(len(self))]
        return hashlib.sha256(json.dumps([list(self.classes), masks]).encode()).hexdigest()

    def truth(self, index: int) -> ClassMap:
        """Class map (H, W) with 255 where ignored, as MMSegmentation's loader reads it."""
        result: ClassMap = self._load(self.dataset.get_data_info(index))["gt_seg_map"]
        return result


def evaluate_segmentation(
    predictors: Sequence[Predictor], data: SegmentationData, progress: Callable[[Sequence[int]], Iterator[int]] = iter
) -> tuple[list[Score], float | None]:
    """Scores one or more predictors on the same images.

    Args:
        predictors: All of the same task and classes.
        data: Images and truth.
        progress: Wraps the iteration over images, to show progress. Defaults to none.

    Returns:
        A score per predictor, and with two or more the share of pixels on which the first two agree.

    Raises:
        ValueError: A mask does not fit its image or the classes.
    """
    classes, paths = list(data.classes), data.paths()
    confusions = [np.zeros((len(classes), len(classes)), np.int64) for _ in predictors]
    equal = total = 0
    for index in progress(range(len(paths))):
        truth = data.truth(index)
        maps = [_class_map(predictor, paths[index]) for predictor in predictors]
        _check_truth(truth, maps[0].shape, len(classes), paths[index])
        for confusion, found in zip(confusions, maps, strict=True):
            confusion += confusion_matrix(truth, found, len(classes))
        if len(maps) > 1:
            equal, total = equal + int((maps[0] == maps[1]).sum()), total + maps[0].size
    scores = [score_of(confusion, classes, len(paths)) for confusion in confusions]
    return scores, equal / total if total else None


def _check_truth(truth: ClassMap, size: tuple[int, ...], num_classes: int, path: Path) -> None:
    if truth.shape != size:
        raise ValueError(f"the mask of {path} is {truth.shape}, the image {size}")
    labels = np.unique(truth)
    unknown = labels[(labels >= num_classes) & (labels != _IGNORED)]
    if unknown.size:
        raise ValueError(f"the mask of {path} holds the labels {unknown.tolist()}; there are {num_classes} classes")


def confusion_matrix(truth: ClassMap, found: ClassMap, num_classes: int) -> npt.NDArray[np.int64]:
    """Counts pixels by true (row) and predicted (column) class; ignored pixels are left out."""
    valid = truth != _IGNORED
    index = truth[valid].astype(np.int64) * num_classes + found[valid]
    return np.bincount(index, minlength=num_classes**2).reshape(num_classes, num_classes)


def score_of(confusion: npt.NDArray[np.int64], classes: Sequence[str], images: int) -> Score:
    """Computes the scores by MMSegmentation's own formula, so that they compare with tools/test.py."""
    from mmseg.evaluation import IoUMetric

    intersect = torch.from_numpy(np.diag(confusion).copy())
    label, predicted = torch.from_numpy(confusion.sum(1)), torch.from_numpy(confusion.sum(0))
    metrics = IoUMetric.total_area_to_metrics(intersect, label + predicted - intersect, predicted, label, ["mIoU"])
    iou = np.asarray(metrics["IoU"], dtype=np.float64) * 100
    return Score(
        values={"miou": float(np.nanmean(iou)), "pixel_accuracy": float(metrics["aAcc"]) * 100},
        by_class={name: float(value) for name, value in zip(classes, iou, strict=True)},
        class_measure="iou",
        images=images,
    )


def pixel_agreement(first: Predictor, second: Predictor, paths: Sequence[Path]) -> float:
    """Share of pixels to which two predictors give the same class, over all images."""
    equal = total = 0
    for path in paths:
        maps = [_class_map(predictor, path) for predictor in (first, second)]
        equal, total = equal + int((maps[0] == maps[1]).sum()), total + maps[0].size
    return equal / total


def _class_map(predictor: Predictor, path: Path) -> ClassMap:
    found = predictor.predict(path).class_map
    if found is None:
        raise ValueError(f"the bundle's task is '{predictor.manifest.task}', not segmentation: it has no mIoU")
    return found


def _pipeline(cfg: Config) -> Sequence[Any]:
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset["dataset"]
    pipeline: Sequence[Any] = dataset["pipeline"]
    return pipeline
