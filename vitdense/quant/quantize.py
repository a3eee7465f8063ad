"""Adding an INT8 file to a bundle, with a receipt, or leaving the bundle as it was."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from deploy.bench import Latency, cpu_model, measure, paired_ratio
from deploy.files import write_json
from deploy.io import read_image
from deploy.manifest import MANIFEST_NAME, Manifest, load_manifest, save_manifest
from deploy.predictor import Predictor
from deploy.preprocess import Preprocessor
from deploy.reference import REFERENCE_NAME, Reference, load_reference, save_reference
from deploy.runtimes.base import check_threads

from ..errors import ParityError
from ..evaluation import LABELS, Score, agreement_on, evaluate, largest_drop, open_data
from ..evaluation.evaluate import Data
from ..export.bundle import MODEL_FILE, RECEIPT_FILE, WORK_PREFIX, file_spec, now, tool_versions
from .calibration import CalibrationSet, collect_calibration, refuse_overlap
from .nncf_onnx import quantize_onnx
from .receipt import read_receipt
from .recipes import OpenVINORecipe

OPENVINO_FILE = "model.openvino-int8.onnx"
TARGETS = ("openvino",)
# INT8 outputs on another CPU: its kernels round elsewhere, and a flipped rounding is one quantization step.
INT8_TOLERANCE = 0.1
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
        recipe: How to quantize.
    """

    bundle: Path
    calibration: Sequence[str]
    limit: int
    max_drop: float
    threads: int
    recipe: OpenVINORecipe = OpenVINORecipe()


def quantize_openvino(
    request: QuantizeRequest, cfg: Config | None, say: Callable[[str], None], progress: Progress = iter
) -> dict[str, Any]:
    """Quantizes a bundle for OpenVINO.

    Args:
        request: What to quantize.
        cfg: A config whose test data score both files; None to measure only their agreement.
        say: Is told each step.
        progress: Wraps the iteration over scored images.

    Returns:
        The receipt.

    Raises:
        ValueError: Bad calibration images, images that are calibrated and scored on, or a drop above ``max_drop``; the
            bundle is unchanged.
        ImportError: NNCF or OpenVINO is not installed.
    """
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
        quantize_onnx(work / MODEL_FILE, work / OPENVINO_FILE, manifest.input.name, tensors, request.recipe)
        staged = _with_int8(manifest, work, calibration, request)
        save_manifest(work, staged)
        fp32, int8 = (
            Predictor(work, runtime="openvino", precision=precision, threads=request.threads, score=0.0)
            for precision in ("fp32", "int8")
        )
        reference = _extend_reference(reference, int8)
        receipt["size_bytes"] = {name: spec.bytes for name, spec in staged.files.items()}
        if cfg is None or data is None:
            receipt["agreement"] = _agreement_record(fp32, int8, held_out, calibration)
            receipt["accuracy"] = None
        else:
            say("Scoring FP32 and INT8 on the same images")
            receipt |= _scored(fp32, int8, cfg, data, request.max_drop, progress)
        say("Measuring latency, FP32 and INT8 in turn")
        receipt["latency"] = _latency_record(fp32, int8, tensors[0])
        _publish(work, request.bundle, staged, reference, receipt)
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


def _with_int8(manifest: Manifest, work: Path, calibration: CalibrationSet, request: QuantizeRequest) -> Manifest:
    record = {
        "target": "openvino",
        "recipe": request.recipe.to_dict(),
        "images": len(calibration.paths),
        "sha256": list(calibration.sha256),
        "made": now(),
        "tools": tool_versions(),
    }
    return replace(
        manifest,
        files={**manifest.files, OPENVINO_FILE: file_spec(work / OPENVINO_FILE, "int8", "openvino")},
        calibration={**manifest.calibration, OPENVINO_FILE: record},
    )


def _scored(
    fp32: Predictor, int8: Predictor, cfg: Config, data: Data, max_drop: float, progress: Progress
) -> dict[str, Any]:
    (before, after), agreement = evaluate([fp32, int8], data, progress)
    name, drop = largest_drop(before, after)
    if not drop <= max_drop:
        raise ParityError(
            f"INT8 loses {drop:.2f} points of {LABELS[name]} ({before.values[name]:.2f} -> {after.values[name]:.2f}), "
            f"allowed are {max_drop:.2f} (--max-drop); the bundle is unchanged. Calibrate on more images like the "
            "scored ones"
        )
    dataset = cfg.test_dataloader.dataset
    return {
        "accuracy": {
            "measured": now(),
            "data": {key: dataset[key] for key in ("type", "data_prefix", "ann_file") if dataset.get(key)},
            "runtime": fp32.runtime.describe(),
            "fp32": _score_dict(before, fp32),
            "int8": _score_dict(after, int8),
            "drop_points": round(drop, 4),
            "max_drop_points": max_drop,
        },
        "agreement": {**(agreement or {}), "images": before.images, "on": "the scored images"},
    }


def _score_dict(score: Score, predictor: Predictor) -> dict[str, Any]:
    return {**score.to_dict(), "sha256": predictor.manifest.files[predictor.filename].sha256}


def _agreement_record(
    fp32: Predictor, int8: Predictor, held_out: Sequence[Path], calibration: CalibrationSet
) -> dict[str, Any] | None:
    paths = held_out or calibration.paths
    agreement = agreement_on(fp32, int8, paths)
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


def _latency_record(fp32: Predictor, int8: Predictor, tensor: Any) -> dict[str, Any]:
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


def _extend_reference(reference: Reference, int8: Predictor) -> Reference:
    results = [int8.runtime(tensor) for tensor in reference.inputs]
    outputs = {name: tuple(result[name] for result in results) for name in results[0]}
    return Reference(
        reference.inputs,
        {**reference.outputs, OPENVINO_FILE: outputs},
        {**reference.tolerances, OPENVINO_FILE: INT8_TOLERANCE},
    )


def _publish(work: Path, bundle: Path, manifest: Manifest, reference: Reference, receipt: dict[str, Any]) -> None:
    """Moves the new files in, or puts back what was there if that fails or is interrupted.

    Should the machine stop in between, the hash check refuses an INT8 file that is not the manifest's, and a second run
    mends it; receipt figures carry the hash of the file that they belong to.
    """
    save_reference(work, reference)
    write_json(work / RECEIPT_FILE, receipt)
    save_manifest(work, manifest)
    names = (REFERENCE_NAME, RECEIPT_FILE, OPENVINO_FILE, MANIFEST_NAME)
    backup = work / "backup"
    backup.mkdir()
    for name in names:
        if (bundle / name).exists():
            shutil.copyfile(bundle / name, backup / name)
    try:
        for name in names:
            os.replace(work / name, bundle / name)
    except BaseException:
        for name in names:
            if (backup / name).exists():
                os.replace(backup / name, bundle / name)
            else:
                (bundle / name).unlink(missing_ok=True)
        raise
