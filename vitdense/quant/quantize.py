"""Adding a target's files to a bundle, with a receipt, or leaving the bundle as it was."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from deploy.bench import Latency, cpu_model, measure, paired_ratio
from deploy.io import read_image
from deploy.manifest import Manifest, load_manifest, save_manifest
from deploy.predictor import Predictor
from deploy.preprocess import Preprocessor
from deploy.reference import Reference, load_reference
from deploy.runtimes.base import check_threads

from ..errors import ParityError
from ..evaluation import LABELS, Score, agreement_on, evaluate, largest_drop, open_data
from ..evaluation.evaluate import Data
from ..export.bundle import MODEL_FILE, RECEIPT_FILE, WORK_PREFIX, file_spec, now, tool_versions
from .calibration import CalibrationSet, collect_calibration, refuse_overlap
from .publish import publish
from .receipt import read_receipt
from .recipes import Recipe
from .targets import Target, TargetFile, target_of

_WARMUP, _ITERATIONS = 3, 15
_HELD_OUT = 8
Progress = Callable[[Sequence[int]], Iterator[int]]


@dataclass(frozen=True)
class QuantizeRequest:
    """What to quantize and how to judge it.

    Args:
        bundle: Folder of the bundle.
        calibration: Folders (or files) of images.
        limit: Most calibration images to use.
        max_drop: Most that mIoU, box AP and mask AP may fall, in points of 100.
        threads: CPU threads for scoring and latency.
        recipe: How to quantize, and for which target.
    """

    bundle: Path
    calibration: Sequence[str]
    limit: int
    max_drop: float
    threads: int
    recipe: Recipe

    @property
    def target(self) -> Target:
        """What the files are for."""
        return target_of(self.recipe)


def quantize(
    request: QuantizeRequest, cfg: Config | None, say: Callable[[str], None], progress: Progress = iter
) -> dict[str, Any]:
    """Quantizes a bundle for a target.

    Args:
        request: What to quantize.
        cfg: A config whose test data score the files; None to measure only how far they agree with FP32.
        say: Is told each step.
        progress: Wraps the iteration over scored images.

    Returns:
        The receipt.

    Raises:
        ValueError: Bad calibration images, or images that are calibrated and scored on.
        ParityError: A drop above ``max_drop``. The bundle is unchanged, as after any error.
        ImportError: NNCF or the target's runtime is not installed.
    """
    target = request.target
    manifest = load_manifest(request.bundle)
    manifest.verify(request.bundle, MODEL_FILE)
    receipt, reference = read_receipt(request.bundle / RECEIPT_FILE), load_reference(request.bundle)
    if manifest.input.shape[0] != 1:
        raise ValueError(f"the bundle takes {manifest.input.shape[0]} images at once; export it with --batch 1")
    calibration, held_out = _split(request, cfg)
    check_threads(request.threads)
    data = None if cfg is None else open_data(manifest, cfg)
    if data is not None:
        refuse_overlap(calibration, data.paths())
    work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=request.bundle))
    try:
        say(f"Quantizing with {len(calibration.paths)} calibration images")
        preprocess = Preprocessor(manifest.input)
        tensors = [preprocess(read_image(path))[0] for path in calibration.paths]
        shutil.copyfile(request.bundle / MODEL_FILE, work / MODEL_FILE)
        target.build(work, MODEL_FILE, manifest.input.name, tensors, request.recipe)
        staged = _with_files(manifest, work, calibration, request)
        save_manifest(work, staged)
        loaded = [_load(work, target, file.precision, file.target, request.threads) for file in target.files]
        for file, predictor in zip(target.files, loaded, strict=True):
            reference = _extend_reference(reference, file, predictor)
        predictors = {"fp32": _load(work, target, "fp32", "any", request.threads)}
        predictors |= {file.precision: loaded[place] for place, file in enumerate(target.files[: target.scored])}
        receipt["size_bytes"] = {name: spec.bytes for name, spec in staged.files.items()}
        if cfg is None or data is None:
            measured = {"accuracy": None, "agreement": _agreement_record(predictors, held_out, calibration)}
        else:
            say(f"Scoring {', '.join(name.upper() for name in predictors)} on the same images")
            measured = _scored(predictors, cfg, data, request.max_drop, progress)
        measured["latency"] = None
        if target.is_device:
            say("Measuring latency, FP32 and INT8 in turn")
            measured["latency"] = _latency_record(predictors, tensors[0])
        receipt["targets"][target.name] = measured
        publish(work, request.bundle, staged, reference, receipt, [file.name for file in target.files])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return receipt


def _split(request: QuantizeRequest, cfg: Config | None) -> tuple[CalibrationSet, tuple[Path, ...]]:
    """Calibration images, and without an evaluation a few others on which agreement is measured."""
    spare = 0 if cfg is not None else _HELD_OUT
    pool = collect_calibration(request.calibration, request.limit, request.recipe.min_images, spare)
    if cfg is not None:
        return pool, ()
    spare = min(_HELD_OUT, max(len(pool.paths) - request.recipe.min_images, 0))
    if not spare:
        return pool, ()
    # Every k-th, so that both parts come from the whole folder.
    step = len(pool.paths) / spare
    held = {int(index * step) for index in range(spare)}
    keep = [index for index in range(len(pool.paths)) if index not in held]
    chosen = CalibrationSet(tuple(pool.paths[i] for i in keep), tuple(pool.sha256[i] for i in keep))
    return chosen, tuple(pool.paths[index] for index in sorted(held))


def _with_files(manifest: Manifest, work: Path, calibration: CalibrationSet, request: QuantizeRequest) -> Manifest:
    record = {
        "target": request.target.name,
        "recipe": request.recipe.to_dict(),
        "images": len(calibration.paths),
        "sha256": list(calibration.sha256),
        "made": now(),
        "tools": tool_versions(),
    }
    files = request.target.files
    return replace(
        manifest,
        files={**manifest.files, **{f.name: file_spec(work / f.name, f.precision, f.target) for f in files}},
        calibration={**manifest.calibration, **{f.name: record for f in files if f.precision == "int8"}},
    )


def _load(work: Path, target: Target, precision: str, kind: str, threads: int) -> Predictor:
    return Predictor(work, runtime=target.runtime, precision=precision, target=kind, threads=threads, score=0.0)


def _extend_reference(reference: Reference, file: TargetFile, predictor: Predictor) -> Reference:
    results = [predictor.runtime(tensor) for tensor in reference.inputs]
    outputs = {name: tuple(result[name] for result in results) for name in results[0]}
    return Reference(
        reference.inputs,
        {**reference.outputs, file.name: outputs},
        {**reference.tolerances, file.name: file.tolerance},
    )


def _scored(
    predictors: dict[str, Predictor], cfg: Config, data: Data, max_drop: float, progress: Progress
) -> dict[str, Any]:
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
                "Calibrate on more images like the scored ones"
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


def _agreement_record(
    predictors: dict[str, Predictor], held_out: Sequence[Path], calibration: CalibrationSet
) -> dict[str, Any] | None:
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


def _latency_record(predictors: dict[str, Predictor], tensor: Any) -> dict[str, Any]:
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
