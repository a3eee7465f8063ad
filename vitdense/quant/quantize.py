"""Adding a target's files to a bundle, with a receipt, or leaving the bundle as it was."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from mmengine.config import Config

from deploy.files import sha256_of
from deploy.io import read_image
from deploy.machine import cpu_model, now
from deploy.manifest import Manifest, load_manifest, save_manifest
from deploy.predictor import Predictor
from deploy.preprocess import Preprocessor
from deploy.receipt import RECEIPT_NAME, read_receipt
from deploy.reference import Reference, load_reference
from deploy.runtimes.base import check_threads

from ..evaluation import open_data
from ..evaluation.evaluate import Data
from ..evaluation.split import open_split
from ..export.bundle import MODEL_FILE, WORK_PREFIX, file_spec, tool_versions
from . import scope
from .calibration import CalibrationSet, collect_calibration
from .measure import agreement_record, latency_record, scored_record
from .publish import publish
from .recipes import Recipe
from .saturation import saturation_record
from .targets import Target, TargetFile, target_of
from .tune import Memory, Progress, search_strength, tune
from .units import int8_share

_HELD_OUT = 8
_FEW = 8  # images on which clipped values are counted
_FEWEST_TUNED = 8


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
        tune: 'train' or 'val' for labelled images on which layers are pinned to float until ``max_drop`` is met; None
            to quantize as the recipe says. Defaults to None.
        tune_images: Most of those images. Defaults to 64.
    """

    bundle: Path
    calibration: Sequence[str]
    limit: int
    max_drop: float
    threads: int
    recipe: Recipe
    tune: str | None = None
    tune_images: int = 64

    @property
    def target(self) -> Target:
        """What the files are for."""
        return target_of(self.recipe)


def _no_progress(items: Sequence[Any], label: str) -> Iterator[Any]:
    return iter(items)


def quantize(
    request: QuantizeRequest, cfg: Config | None, say: Callable[[str], None], progress: Progress = _no_progress
) -> dict[str, Any]:
    """Quantizes a bundle for a target.

    Args:
        request: What to quantize.
        cfg: A config whose test data score the files; None to measure only how far they agree with FP32.
        say: Is told each step.
        progress: Wraps an iteration, with what it does.

    Returns:
        The receipt.

    Raises:
        ValueError: Too few calibration images that are not scored on, or bad ones.
        ParityError: A drop above ``max_drop``. The bundle is unchanged, as after any error; what was measured for
            tuning is kept beside it, for the next run.
        ImportError: NNCF or the target's runtime is not installed.
    """
    target = request.target
    manifest = load_manifest(request.bundle)
    manifest.verify(request.bundle, MODEL_FILE)
    receipt, reference = read_receipt(request.bundle / RECEIPT_NAME), load_reference(request.bundle)
    if manifest.input.shape[0] != 1:
        raise ValueError(f"the bundle takes {manifest.input.shape[0]} images at once; export it with --batch 1")
    check_threads(request.threads)
    data = None if cfg is None else open_data(manifest, cfg)
    calibration, held_out = _split(request, data)
    if calibration.left_out:
        say(f"{calibration.left_out} images of the calibration folders are also scored on: left out")
    tuner = None
    if request.tune is not None:
        if cfg is None or data is None:
            raise ValueError("tuning needs the config that --eval gives: labelled images, and others to verify it on")
        tuner = _Tuner(request, manifest, cfg, calibration, data)
    work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=request.bundle))
    try:
        say(f"Quantizing with {len(calibration.paths)} calibration images")
        preprocess = Preprocessor(manifest.input)
        tensors = [preprocess(read_image(path))[0] for path in calibration.paths]
        shutil.copyfile(request.bundle / MODEL_FILE, work / MODEL_FILE)
        source = onnx.load(work / MODEL_FILE)
        _check_modules(source, manifest)

        @lru_cache(maxsize=1)  # the last strength that is tried is often the best
        def quantize_by(recipe: Recipe) -> onnx.ModelProto:
            return target.quantize(source, manifest.input.name, tensors, recipe)

        if tuner is None:
            quantized = quantize_by(request.recipe)
        else:
            quantized, request = tuner.run(work, source, quantize_by, say, progress)
        others = [preprocess(read_image(path))[0] for path in _few(held_out if data is None else data.paths())]
        clipped = saturation_record(quantized, source, tensors[:_FEW], others, request.threads) if others else None
        if clipped and clipped["unlike"]:
            worst = clipped["worst"]
            say(
                f"Warning: the calibration images are unlike the others, {clipped['others']:.2%} of whose values are "
                f"clipped ({clipped['calibration']:.2%} on the calibration images); most at {worst['unit']}, "
                f"{worst['share']:.2%}. Calibrate on images like those that the model will see"
            )
        share = round(int8_share(quantized, source), 4)
        asked = target.write(work, source, quantized)
        staged = _with_files(manifest, work, calibration, request, target.files, tuner.record if tuner else None)
        files = {name: replace(spec, layers=asked.get(name, spec.layers)) for name, spec in staged.files.items()}
        staged = replace(staged, files=files)
        save_manifest(work, staged)
        loaded = [_load(work, target, file.precision, file.target, request.threads) for file in target.files]
        for file, predictor in zip(target.files, loaded, strict=True):
            reference = _extend_reference(reference, file, predictor)
        predictors = {"fp32": _load(work, target, "fp32", "any", request.threads)}
        predictors |= {file.precision: loaded[place] for place, file in enumerate(target.files[: target.scored])}
        receipt["size_bytes"] = {name: spec.bytes for name, spec in staged.files.items()}
        if cfg is None or data is None:
            measured: dict[str, Any] = {
                "accuracy": None,
                "agreement": agreement_record(predictors, held_out, calibration),
            }
        else:
            say(f"Scoring {', '.join(name.upper() for name in predictors)} on the same images")
            measured = scored_record(predictors, cfg, data, request.max_drop, lambda items: progress(items, "Scoring"))
        measured["latency"] = None
        if target.is_device:
            say("Measuring latency, FP32 and INT8 in turn")
            measured["latency"] = latency_record(predictors, tensors[0])
        measured["int8_share"] = share
        measured["saturation"] = clipped
        measured["tuning"] = None if tuner is None else tuner.receipt
        receipt["targets"][target.name] = measured
        publish(work, request.bundle, staged, reference, receipt, [file.name for file in target.files])
        memory_path(request.bundle, target.name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return receipt


def _few(paths: Sequence[Path]) -> Sequence[Path]:
    """A few images, evenly spaced."""
    return paths[:: max(len(paths) // _FEW, 1)][:_FEW]


def _split(request: QuantizeRequest, data: Data | None) -> tuple[CalibrationSet, tuple[Path, ...]]:
    """Calibration images, and without an evaluation a few others on which agreement is measured."""
    if data is not None:
        scored = {sha256_of(path) for path in data.paths()}
        return collect_calibration(request.calibration, request.limit, request.recipe.min_images, scored=scored), ()
    pool = collect_calibration(request.calibration, request.limit, request.recipe.min_images, _HELD_OUT)
    spare = min(_HELD_OUT, max(len(pool.paths) - request.recipe.min_images, 0))
    if not spare:
        return pool, ()
    # Every k-th, so that both parts come from the whole folder.
    step = len(pool.paths) / spare
    held = {int(index * step) for index in range(spare)}
    keep = [index for index in range(len(pool.paths)) if index not in held]
    chosen = CalibrationSet(tuple(pool.paths[i] for i in keep), tuple(pool.sha256[i] for i in keep))
    return chosen, tuple(pool.paths[index] for index in sorted(held))


def memory_path(bundle: Path, target: str) -> Path:
    """Where a tuning keeps what it measured until it is done."""
    return bundle / f"{WORK_PREFIX}tuning-{target}.json"


class _Tuner:
    """The tuning of a request: which images it looks at, and where it keeps what it measured.

    Args:
        request: With ``tune``.
        manifest: Of the bundle.
        cfg: The config that labels its images.
        calibration: Images that it does not look at.
        data: Nor at these, which verify it.

    Attributes:
        memory: Of what was measured.
        record: For the manifest: which images were looked at, and what was pinned. Empty before :meth:`run`.
        receipt: For the receipt: what was measured. Empty before :meth:`run`.
    """

    def __init__(
        self, request: QuantizeRequest, manifest: Manifest, cfg: Config, calibration: CalibrationSet, data: Data
    ) -> None:
        self.request, self.manifest, self.calibration = request, manifest, calibration
        excluded = {*calibration.sha256, *(sha256_of(path) for path in data.paths())}
        assert request.tune is not None
        self.data, self.hashes = open_split(manifest, cfg, request.tune, request.tune_images, _FEWEST_TUNED, excluded)
        key = {
            "model": manifest.files[MODEL_FILE].sha256,
            "recipe": {"target": request.recipe.target, **request.recipe.to_dict()},
            "calibration": list(calibration.sha256),
            "tuning": list(self.hashes),
            "labels": self.data.fingerprint(),
            "cpu": cpu_model(),
            "tools": tool_versions(),
        }
        self.memory = Memory(memory_path(request.bundle, request.recipe.target), key)
        self.record: dict[str, Any] = {}
        self.receipt: dict[str, Any] = {}

    def run(
        self,
        work: Path,
        source: onnx.ModelProto,
        quantize_by: Callable[[Recipe], onnx.ModelProto],
        say: Callable[[str], None],
        progress: Progress,
    ) -> tuple[onnx.ModelProto, QuantizeRequest]:
        """Quantizes with the best strength of SmoothQuant, then pins layers; ``work`` is a folder for the variants.

        Returns:
            The model, and the request with the recipe that made it.
        """
        request, file = self.request, self.request.target.files[0]
        say(f"Tuning on {len(self.hashes)} images of the {request.tune} data")
        if len(self.memory):
            say(f"{len(self.memory)} figures are known from an earlier run")

        def load(model: onnx.ModelProto) -> Predictor:
            onnx.save(model, work / file.name)
            save_manifest(work, _with_files(self.manifest, work, self.calibration, request, [file], None))
            return _load(work, request.target, file.precision, file.target, request.threads)

        def with_strength(strength: float) -> QuantizeRequest:
            return replace(request, recipe=replace(request.recipe, smooth_quant_alpha=strength))

        strength, shares = search_strength(
            lambda strength: quantize_by(with_strength(strength).recipe),
            request.recipe.smooth_quant_alpha,
            source,
            load,
            self.data,
            self.memory,
            say,
        )
        request = with_strength(strength)
        quantized, tuning = tune(
            source, quantize_by(request.recipe), load, self.data, request.max_drop, self.memory, say, progress
        )
        found = {"max_drop_points": request.max_drop, "smooth_quant": shares, **tuning.to_dict()}
        images = {"split": request.tune, "images": len(self.hashes)}
        self.receipt = {"measured": now(), "runtime": request.target.runtime, **images, **found}
        self.record = {**images, "sha256": list(self.hashes), "pinned": found["pinned"]}
        return quantized, request


def _check_modules(source: onnx.ModelProto, manifest: Manifest) -> None:
    """Raises ValueError if a detector's file does not tell its post-processing from its layers."""
    if manifest.task in ("detection", "instance_segmentation") and not scope.postprocessing_nodes(source):
        raise ValueError(
            f"{MODEL_FILE} does not say which modules its nodes came from (a tool took its metadata out?), so its "
            "boxes would be rounded to 8 bits; export the bundle again"
        )


def _with_files(
    manifest: Manifest,
    work: Path,
    calibration: CalibrationSet,
    request: QuantizeRequest,
    files: Sequence[TargetFile],
    tuning: dict[str, Any] | None,
) -> Manifest:
    record = {
        "target": request.target.name,
        "recipe": request.recipe.to_dict(),
        "images": len(calibration.paths),
        "sha256": list(calibration.sha256),
        "made": now(),
        "tools": tool_versions(),
        "tuning": tuning,
    }
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
