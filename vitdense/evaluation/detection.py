"""AP of a bundle on the test data of a config, with the device's own preprocessing and postprocessing."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mmengine.config import Config

from deploy.detections import Detections, agreement_share, common_counts
from deploy.predictor import Predictor

from ..engine.build import build_test_dataset
from .score import Score

if TYPE_CHECKING:
    from pycocotools.coco import COCO  # comes with MMDetection; segmenters are scored without

_LARGEST_COCO_COUNT = 100  # detections of an image that COCO's AP looks at


class DetectionData:
    """Image paths and ground truth of a config's test data.

    The truth is the annotation file of the config's CocoMetric, if it names one, and else what the data set reads.

    Args:
        cfg: A config of MMDetection.

    Attributes:
        dataset: MMDetection's data set.
        infos: What it knows of each image.
        has_masks: Whether there are masks.
        truth: COCO's index of the truth.
        image_ids: Identity of each image in it.
        categories: Category in it of each class index.

    Raises:
        ValueError: The data set has no boxes, or not the images of the annotation file.
    """

    def __init__(self, cfg: Config) -> None:
        from pycocotools.coco import COCO

        self.dataset = build_test_dataset(cfg)
        self.infos = [self.dataset.get_data_info(index) for index in range(len(self.dataset))]
        if not self.infos or "instances" not in self.infos[0]:
            raise ValueError("the test data of the config hold no boxes; expected a data set of MMDetection")
        self.has_masks = any("mask" in item for info in self.infos for item in info["instances"])
        ann_file = _annotation_file(cfg)
        with _quiet():
            self.truth = self._as_coco() if ann_file is None else COCO(ann_file)
        if ann_file is None:
            self.image_ids, self.categories = list(range(len(self.infos))), list(range(len(self.classes)))
        else:
            # Categories in the order of the file, as MMDetection's data set numbers its labels.
            self.image_ids = [info["img_id"] for info in self.infos]
            self.categories = self.truth.getCatIds(catNms=list(self.classes))
            self._check_file(ann_file)

    @property
    def classes(self) -> Sequence[str]:
        """Class names, by index."""
        classes: Sequence[str] = self.dataset.metainfo["classes"]
        return classes

    def paths(self) -> list[Path]:
        """The images."""
        return [Path(info["img_path"]) for info in self.infos]

    def subset(self, places: Sequence[int]) -> DetectionData:
        """The same data with some of the images."""
        part = copy.copy(self)
        part.infos = [self.infos[place] for place in places]
        part.image_ids, part.categories = list(range(len(part.infos))), list(range(len(self.classes)))
        with _quiet():
            part.truth = part._as_coco()
        return part

    def fingerprint(self) -> str:
        """A hash of classes and labels: other labels give other scores."""
        labels = [list(self.classes), self.truth.dataset["annotations"]]
        return hashlib.sha256(json.dumps(labels, default=str).encode()).hexdigest()

    def _check_file(self, ann_file: str) -> None:
        ours, theirs = set(self.image_ids), set(self.truth.getImgIds())
        if ours != theirs or len(self.categories) != len(self.classes):
            raise ValueError(
                f"the test data have {len(ours)} images and {len(self.classes)} classes; {ann_file} knows "
                f"{len(ours & theirs)} and {len(self.categories)} of them, and has {len(theirs)} images. They must be "
                "the same, or the score would be that of a part"
            )

    def _as_coco(self) -> COCO:
        from pycocotools.coco import COCO

        images, annotations = [], []
        for number, info in enumerate(self.infos):
            images.append({"id": number, "width": info["width"], "height": info["height"]})
            for item in info["instances"]:
                left, top, right, bottom = item["bbox"]
                annotation = {
                    "id": len(annotations) + 1,  # COCOeval takes an annotation 0 for no match
                    "image_id": number,
                    "category_id": item["bbox_label"],
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": int(item.get("ignore_flag", 0)),
                }
                if "mask" in item:
                    annotation["segmentation"] = item["mask"]
                annotations.append(annotation)
        categories = [{"id": index, "name": name} for index, name in enumerate(self.classes)]
        truth = COCO()
        truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
        truth.createIndex()
        return truth

    def results(self, index: int, found: Detections) -> list[dict[str, Any]]:
        """The detections of an image in COCO's form."""
        from pycocotools import mask as rle

        entries = []
        for place in range(len(found)):
            left, top, right, bottom = (float(value) for value in found.boxes[place])
            entry = {
                "image_id": self.image_ids[index],
                "category_id": self.categories[int(found.labels[place])],
                "bbox": [left, top, right - left, bottom - top],
                "score": float(found.scores[place]),
            }
            if found.masks is not None:
                entry["segmentation"] = rle.encode(np.asfortranarray(found.masks[place], dtype=np.uint8))
            entries.append(entry)
        return entries


def evaluate_detection(
    predictors: Sequence[Predictor], data: DetectionData, progress: Callable[[Sequence[int]], Iterator[int]] = iter
) -> tuple[list[Score], float | None]:
    """Scores one or more predictors on the same images.

    Args:
        predictors: All of the same task and classes, with a score threshold of 0: AP needs the doubtful objects too.
        data: Images and truth.
        progress: Wraps the iteration over images, to show progress. Defaults to none.

    Returns:
        A score per predictor, and with two or more the share of objects on which the first two agree.
    """
    results: list[list[dict[str, Any]]] = [[] for _ in predictors]
    masks = data.has_masks
    counts = np.zeros((2, 2), np.int64)
    paths = data.paths()
    for index in progress(range(len(paths))):
        found = [objects_of(predictor, paths[index]) for predictor in predictors]
        masks = masks and all(objects.masks is not None for objects in found)
        for entries, objects in zip(results, found, strict=True):
            entries += data.results(index, objects)
        if len(found) > 1:
            counts += common_counts(found[0], found[1])
    scores = [_score(entries, data, masks) for entries in results]
    return scores, agreement_share(counts) if len(predictors) > 1 else None


def object_agreement(first: Predictor, second: Predictor, paths: Sequence[Path]) -> float:
    """Share of objects that two predictors have in common, over all images."""
    counts = np.zeros((2, 2), np.int64)
    for path in paths:
        counts += common_counts(objects_of(first, path), objects_of(second, path))
    return agreement_share(counts)


def objects_of(predictor: Predictor, path: Path) -> Detections:
    """What a detector finds in an image.

    Raises:
        ValueError: The bundle is no detector.
    """
    found = predictor.predict(path).detections
    if found is None:
        raise ValueError(f"the bundle's task is '{predictor.manifest.task}', not detection: it has no AP")
    return found


def _score(results: list[dict[str, Any]], data: DetectionData, masks: bool) -> Score:
    values, by_class = {}, {}
    for kind, name in (("bbox", "box"), ("segm", "mask")) if masks else (("bbox", "box"),):
        precision = _precision(results, data, kind)
        values[f"{name}_ap"] = _mean(precision)
        values[f"{name}_ap50"], values[f"{name}_ap75"] = _mean(precision[0]), _mean(precision[5])
        if kind == "bbox":
            by_class = {label: _mean(precision[..., index]) for index, label in enumerate(data.classes)}
    return Score(values, by_class, "ap", len(data.paths()))


def _precision(results: list[dict[str, Any]], data: DetectionData, kind: str) -> npt.NDArray[np.float64]:
    """Precision by IoU (10), recall (101) and class, in points of 100; negative where a class does not occur."""
    from pycocotools.cocoeval import COCOeval

    if not results:
        occurs = {data.truth.anns[key]["category_id"] for key in data.truth.anns}
        nothing = np.array([0.0 if category in occurs else -1.0 for category in data.categories])
        return np.broadcast_to(nothing, (10, 101, len(nothing)))
    # COCO adds to what it is given, and would take the area of a box for its mask's.
    other = "bbox" if kind == "segm" else "segmentation"
    entries = [{key: value for key, value in entry.items() if key != other} for entry in results]
    with _quiet():
        evaluation = COCOeval(data.truth, data.truth.loadRes(entries), kind)
        evaluation.params.catIds = data.categories
        evaluation.params.maxDets = [1, 10, _LARGEST_COCO_COUNT]
        evaluation.evaluate()
        evaluation.accumulate()
    precision: npt.NDArray[np.float64] = evaluation.eval["precision"][:, :, :, 0, -1] * 100
    # COCO has the categories in ascending order, whatever it was given.
    return precision[..., np.searchsorted(sorted(data.categories), data.categories)]


def _mean(precision: npt.NDArray[np.float64]) -> float:
    measured = precision[precision > -1]
    return float(measured.mean()) if measured.size else float("nan")


def _annotation_file(cfg: Config) -> str | None:
    evaluators = cfg.get("test_evaluator") or []
    for metric in evaluators if isinstance(evaluators, list) else [evaluators]:
        if "lvis" in str(metric.get("type", "")).lower():
            raise ValueError(
                f"the config is scored by {metric['type']}, whose truth leaves most classes of an image open; bundles "
                "are scored by COCO's AP, which would count those as mistakes"
            )
        if str(metric.get("type", "")).rsplit(".", 1)[-1] == "CocoMetric" and metric.get("ann_file"):
            return str(metric["ann_file"])
    return None


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """pycocotools prints each of its steps."""
    return contextlib.redirect_stdout(io.StringIO())
