"""mIoU of a bundle on the test data of a config, with the device's own preprocessing and postprocessing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from mmengine.config import Config
from mmengine.registry import TRANSFORMS

from deploy.files import sha256_of
from deploy.manifest import Manifest
from deploy.predictor import Predictor

from ..engine.build import build_test_dataset

ClassMap = npt.NDArray[Any]
_IGNORED = 255


@dataclass(frozen=True)
class SegmentationScore:
    """Accuracy over a whole data set.

    Args:
        miou: Mean IoU over the classes that occur, in points of 100.
        pixel_accuracy: Share of labelled pixels with the right class, in points of 100.
        iou: IoU by class, in points of 100; NaN where the class occurs neither in truth nor in prediction.
        images: Number of images.
    """

    miou: float
    pixel_accuracy: float
    iou: dict[str, float]
    images: int


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

    def truth(self, index: int) -> ClassMap:
        """Class map (H, W) with 255 where ignored, as MMSegmentation's loader reads it."""
        result: ClassMap = self._load(self.dataset.get_data_info(index))["gt_seg_map"]
        return result


def evaluate_segmentation(
    predictors: Sequence[Predictor], cfg: Config, progress: Callable[[Sequence[int]], Iterator[int]] = iter
) -> tuple[list[SegmentationScore], float | None]:
    """Scores one or more predictors on the same images.

    Args:
        predictors: All of the same task and classes.
        cfg: A config of MMSegmentation whose test data are used.
        progress: Wraps the iteration over images, to show progress. Defaults to none.

    Returns:
        A score per predictor, and with two or more the share of pixels on which the first two agree.

    Raises:
        ValueError: The classes of the data differ from those of the bundle, an image was calibrated on, or a mask does
            not fit its image or the classes.
    """
    data = SegmentationData(cfg)
    classes = list(data.classes)
    for predictor in predictors:
        check_same_classes(predictor.manifest, classes)
    paths = data.paths()
    for predictor in predictors:
        refuse_calibrated(predictor, paths)
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


def check_same_classes(manifest: Manifest, classes: Sequence[str]) -> None:
    """Raises ValueError unless bundle and data have the same classes in the same order."""
    if list(manifest.classes) != list(classes):
        raise ValueError(
            f"the bundle has {len(manifest.classes)} classes {list(manifest.classes)}, "
            f"the test data of the config {len(classes)}: {list(classes)}"
        )


def refuse_calibrated(predictor: Predictor, paths: Sequence[Path]) -> None:
    """Raises ValueError if the model file was calibrated on one of these images: its score would flatter."""
    record = predictor.manifest.calibration.get(predictor.filename) or {}
    if not isinstance(record, dict) or not isinstance(record.get("sha256", []), list):
        raise ValueError(f"the calibration record of {predictor.filename} in the manifest is damaged; quantize again")
    hashes = set(record.get("sha256", ()))
    shared = [path for path in paths if sha256_of(path) in hashes] if hashes else []
    if shared:
        raise ValueError(
            f"{predictor.filename} was calibrated on {len(shared)} of the {len(paths)} images to score (by sha256), "
            f"e.g. {shared[0]}; score on other images, or calibrate on others"
        )


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


def score_of(confusion: npt.NDArray[np.int64], classes: Sequence[str], images: int) -> SegmentationScore:
    """Computes the scores by MMSegmentation's own formula, so that they compare with tools/test.py."""
    from mmseg.evaluation import IoUMetric

    intersect = torch.from_numpy(np.diag(confusion).copy())
    label, predicted = torch.from_numpy(confusion.sum(1)), torch.from_numpy(confusion.sum(0))
    metrics = IoUMetric.total_area_to_metrics(intersect, label + predicted - intersect, predicted, label, ["mIoU"])
    iou = np.asarray(metrics["IoU"], dtype=np.float64) * 100
    return SegmentationScore(
        miou=float(np.nanmean(iou)),
        pixel_accuracy=float(metrics["aAcc"]) * 100,
        iou={name: float(value) for name, value in zip(classes, iou, strict=True)},
        images=images,
    )


def pixel_agreement(first: Predictor, second: Predictor, paths: Sequence[Path]) -> float:
    """Share of pixels to which two predictors give the same class, over all images."""
    equal = total = 0
    for path in paths:
        maps = [_class_map(predictor, path) for predictor in (first, second)]
        equal, total = equal + int((maps[0] == maps[1]).sum()), total + maps[0].size
    return equal / total


def score_to_dict(score: SegmentationScore) -> dict[str, Any]:
    """For JSON: a class that is absent has no IoU (null)."""
    values = asdict(score)
    values["iou"] = {name: None if value != value else round(value, 2) for name, value in score.iou.items()}
    return values


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
