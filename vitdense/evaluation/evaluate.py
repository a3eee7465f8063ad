"""One entry for all tasks: the score of bundles, and how far two agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mmengine.config import Config

from deploy.files import sha256_of
from deploy.manifest import Manifest
from deploy.predictor import Predictor

from .detection import DetectionData, evaluate_detection, object_agreement
from .score import Score, check_same_classes
from .segmentation import SegmentationData, evaluate_segmentation, pixel_agreement

Data = SegmentationData | DetectionData
Agreement = dict[str, float]


def open_data(manifest: Manifest, cfg: Config) -> Data:
    """Reads the test data of a config for a bundle.

    Raises:
        ValueError: The task has no score, or the classes of the data differ from those of the bundle.
    """
    if manifest.task == "features":
        raise ValueError("a bundle of task 'features' has no score; export a segmenter or a detector")
    data = SegmentationData(cfg) if manifest.task == "segmentation" else DetectionData(cfg)
    check_same_classes(manifest.classes, data.classes)
    return data


def evaluate(
    predictors: Sequence[Predictor], data: Data, progress: Callable[[Sequence[int]], Iterator[int]] = iter
) -> tuple[list[Score], Agreement | None]:
    """Scores one or more predictors on the same images.

    Args:
        predictors: All of the same bundle; detectors with a score threshold of 0.
        data: From :func:`open_data` for it.
        progress: Wraps the iteration over images, to show progress. Defaults to none.

    Returns:
        A score per predictor, and with two or more the share on which the first two agree: 'pixels_equal' or
        'objects_agree'.

    Raises:
        ValueError: An image was calibrated on, or a mask does not fit its image or the classes.
    """
    paths = data.paths()
    for predictor in predictors:
        _refuse_calibrated(predictor, paths)
    if isinstance(data, SegmentationData):
        scores, share = evaluate_segmentation(predictors, data, progress)
        return scores, None if share is None else {"pixels_equal": share}
    scores, share = evaluate_detection(predictors, data, progress)
    return scores, None if share is None else {"objects_agree": share}


def agreement_on(first: Predictor, second: Predictor, paths: Sequence[Path]) -> Agreement | None:
    """How far two predictors agree on images without labels, as in :func:`evaluate`; None for features."""
    if first.manifest.task == "features":
        return None
    if first.manifest.task == "segmentation":
        return {"pixels_equal": pixel_agreement(first, second, paths)}
    return {"objects_agree": object_agreement(first, second, paths)}


def _refuse_calibrated(predictor: Predictor, paths: Sequence[Path]) -> None:
    """Raises ValueError if the model file was calibrated on one of these images: its score would flatter."""
    record = predictor.manifest.calibration.get(predictor.filename) or {}
    if not isinstance(record, dict) or not isinstance(record.get("sha256", []), list):
        raise ValueError(f"the calibration record of {predictor.filename} in the manifest is damaged; quantize again")
    tuning = record.get("tuning") or {}
    if not isinstance(tuning, dict) or not isinstance(tuning.get("sha256", []), list):
        raise ValueError(f"the tuning record of {predictor.filename} in the manifest is damaged; quantize again")
    hashes = {*record.get("sha256", ()), *tuning.get("sha256", ())}
    shared = [path for path in paths if sha256_of(path) in hashes] if hashes else []
    if shared:
        raise ValueError(
            f"{predictor.filename} was calibrated or tuned on {len(shared)} of the {len(paths)} images to score (by "
            f"sha256), e.g. {shared[0]}; score on other images, or calibrate on others"
        )
