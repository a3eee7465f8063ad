"""The measured part of a receipt: accuracy, agreement with FP32, latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from deploy.latency import Latency, measure, paired_ratio
from deploy.machine import cpu_model, now
from deploy.predictor import Predictor

from ..errors import ParityError
from ..evaluation import LABELS, Score, agreement_on, evaluate, largest_drop
from ..evaluation.evaluate import Data
from .calibration import CalibrationSet

_WARMUP, _ITERATIONS = 3, 15


def scored_record(
    predictors: dict[str, Predictor],
    cfg: Config,
    data: Data,
    max_drop: float,
    progress: Callable[[Sequence[int]], Iterator[int]],
) -> dict[str, Any]:
    """Accuracy and agreement on labelled images.

    Args:
        predictors: By precision, 'fp32' first and 'int8' second.
        cfg: The config that the data are from.
        data: Labelled images.
        max_drop: Most that a main measure may fall, in points of 100.
        progress: Wraps the iteration over images.

    Raises:
        ParityError: A larger drop.
    """
    scores, agreement = evaluate(list(predictors.values()), data, progress)
    by_precision = dict(zip(predictors, scores, strict=True))
    before = by_precision["fp32"]
    drops = {}
    for precision, after in list(by_precision.items())[1:]:
        name, drop = largest_drop(before, after)
        drops[precision] = drop
        if not drop <= max_drop:
            raise ParityError(
                f"{precision.upper()} loses {drop:.2f} points of {LABELS[name]} ({before.values[name]:.2f} -> "
                f"{after.values[name]:.2f}), allowed are {max_drop:.2f} (--max-drop); the bundle is unchanged. "
                "Calibrate on more images like the scored ones, or tune (--tune), on more images if it was tuned"
            )
    dataset = cfg.test_dataloader.dataset
    return {
        "accuracy": {
            "measured": now(),
            "data": {key: dataset[key] for key in ("type", "data_prefix", "ann_file") if dataset.get(key)},
            "runtime": predictors["fp32"].runtime.describe(),
            **{name: _score_dict(score, predictors[name]) for name, score in by_precision.items()},
            "drop_points": round(drops["int8"], 4),
            "max_drop_points": max_drop,
        },
        "agreement": {**(agreement or {}), "images": before.images, "on": "the scored images"},
    }


def _score_dict(score: Score, predictor: Predictor) -> dict[str, Any]:
    return {**score.to_dict(), "sha256": predictor.manifest.files[predictor.filename].sha256}


def agreement_record(
    predictors: dict[str, Predictor], held_out: Sequence[Path], calibration: CalibrationSet
) -> dict[str, Any] | None:
    """Agreement of INT8 with FP32 on images without labels: those held out, or else those calibrated on."""
    paths = held_out or calibration.paths
    int8 = predictors["int8"]
    agreement = agreement_on(predictors["fp32"], int8, paths)
    if agreement is None:
        return None
    on = "images of the calibration folder that were left out of calibration" if held_out else "the calibration images"
    return {
        **agreement,
        "sha256": int8.manifest.files[int8.filename].sha256,
        "images": len(paths),
        "on": on,
        "note": "accuracy was not measured: no --eval",
    }


def latency_record(predictors: dict[str, Predictor], tensor: Any) -> dict[str, Any]:
    """Latency of FP32 and INT8 on one input, measured in turn."""
    fp32, int8 = predictors["fp32"], predictors["int8"]
    latencies: list[Latency] = measure([fp32.runtime, int8.runtime], tensor, _WARMUP, _ITERATIONS)
    return {
        "measured": now(),
        "cpu": cpu_model(),
        "iterations": _ITERATIONS,
        "how": "model alone, FP32 and INT8 in turn in one process",
        "fp32": {**latencies[0].to_dict(), **fp32.describe()},
        "int8": {**latencies[1].to_dict(), **int8.describe()},
        "speedup": round(paired_ratio(latencies[0], latencies[1]), 3),
    }
