"""Writing a bundle: the ONNX file, its manifest, reference outputs and receipt, or nothing at all."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from torch import nn

from deploy.engines.record import ENGINES
from deploy.files import sha256_of, write_json
from deploy.io import read_image
from deploy.machine import now
from deploy.manifest import MANIFEST_NAME, Manifest, load_manifest, save_manifest
from deploy.preprocess import Preprocessor
from deploy.receipt import RECEIPT_NAME
from deploy.reference import REFERENCE_NAME, Reference, check_reference, save_reference
from deploy.runtimes import create_runtime
from deploy.specs import FileSpec, OutputSpec

from ..engine.build import dataset_metainfo
from ..errors import ParityError
from ..models import ViT
from .detection.graph import DetectorGraph, detector_thresholds
from .detection.parity import eager_detections
from .lowering import lower
from .onnx_export import OPSET, export_onnx
from .parity import Array, Parity, check_detections, check_parity, eager_outputs, installed_runtimes
from .spec import classes_and_palette, input_spec, output_specs
from .torch_half import HalfProgram
from .torch_program import save_program, trace_program
from .wrappers import wrap

MODEL_FILE = "model.onnx"
PROGRAM_FILE, HALF_PROGRAM_FILE = "model.pt2", "model.fp16.pt2"
WORK_PREFIX = ".quantize."
FIGURE_PREFIX = "sensitivity-"
# What a device may differ by, as max|a - b| / max|b|: float32 on another CPU sums in another order.
FP32_TOLERANCE = 1e-3
FP16_TOLERANCE = 0.05
_REFERENCE_IMAGES = 2
_COARSEST_STRIDE = 32  # of a convolutional or hierarchical backbone
_LARGEST_SIDE = 4096
_RECORDED_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino", "nncf", "numpy", "opencv-python")


@dataclass(frozen=True)
class ExportRequest:
    """What to export and where to.

    Args:
        out: Folder of the bundle.
        shape: (H, W) of the input in pixels.
        task: See :func:`.wrappers.wrap`.
        images: Real images for the parity check.
        source: Where the model comes from, for the manifest.
        threads: CPU threads of the parity check.
        batch: Images per run. Defaults to 1.
        overwrite: Whether an existing bundle is replaced. Defaults to False.
        nms: ``rounds`` and ``candidates`` of a detector's graph, where they shall not be the defaults.
        program: Whether exported programs of PyTorch are written too, in float32 and float16. Defaults to False.
    """

    out: Path
    shape: tuple[int, int]
    task: str
    images: Sequence[Path]
    source: dict[str, Any]
    threads: int
    batch: int = 1
    overwrite: bool = False
    nms: dict[str, int] = field(default_factory=dict)
    program: bool = False


def export_bundle(model: nn.Module, cfg: Config, request: ExportRequest) -> tuple[Manifest, list[Parity]]:
    """Exports a trained model and checks it against itself; the bundle appears only if the check passes.

    Args:
        model: The trained model.
        cfg: Its config.
        request: What to export and where to.

    Returns:
        The manifest, and the parity on each installed runtime.

    Raises:
        ValueError: ``out`` exists, the shape is out of range, or the model or its config cannot be exported.
        ParityError: The exported file computes something else than the model.
    """
    check_destination(request.out, request.overwrite)
    model = model.eval().cpu()
    patch_size = next((module.patch_size for module in model.modules() if isinstance(module, ViT)), None)
    smallest = patch_size or _COARSEST_STRIDE
    if min(request.shape) < smallest or max(request.shape) > _LARGEST_SIDE:
        raise ValueError(
            f"the shape {request.shape} must lie in {smallest} ({'one patch' if patch_size else 'one cell'}) to "
            f"{_LARGEST_SIDE} pixels"
        )
    graph = wrap(model, request.task, request.shape, **request.nms).eval()
    request.out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{request.out.name}.", dir=request.out.parent))
    try:
        spec = input_spec(cfg, request.shape, request.batch)
        preprocess = Preprocessor(spec)
        tensors, geometries = zip(*(preprocess(read_image(path)) for path in request.images), strict=True)
        detector = isinstance(graph, DetectorGraph)
        expected = eager_outputs(graph, tensors[:1] if detector else tensors)
        batch_of_first = [output.repeat(request.batch, axis=0) for output in expected[0]]
        outputs = output_specs(graph.outputs(len(batch_of_first)), batch_of_first, request.shape, patch_size or 1)
        thresholds = detector_thresholds(model) if detector else {}
        number = outputs[0].shape[1] if graph.task == "segmentation" else 0
        if isinstance(graph, DetectorGraph):
            number = graph.num_classes
        classes, palette = classes_and_palette(dataset_metainfo(cfg), number) if number else ([], [])
        lowered = wrap(lower(model, request.shape), request.task, request.shape, **request.nms).eval()
        export_onnx(lowered, request.shape, work / MODEL_FILE, request.batch)
        files = {MODEL_FILE: file_spec(work / MODEL_FILE, "fp32", "any")}
        checked = [(MODEL_FILE, name) for name in installed_runtimes()]
        if request.program:
            program = trace_program(lowered, request.shape, request.batch)
            save_program(program, work / PROGRAM_FILE)
            files[PROGRAM_FILE] = file_spec(work / PROGRAM_FILE, "fp32", "torch")
            checked.append((PROGRAM_FILE, "torch"))
        if detector:
            objects = eager_detections(model, tensors, geometries)
            check = partial(check_detections, expected=objects, geometries=geometries, mask=thresholds.get("mask", 0.5))
        else:
            check = partial(check_parity, expected=expected)
        parities = [
            check(work / file, name, tensors, spec=spec, outputs=outputs, threads=request.threads)
            for file, name in checked
        ]
        runtime = create_runtime("onnxruntime", work / MODEL_FILE, spec, outputs, threads=request.threads)
        reference = _reference(_batches(tensors, request.batch), runtime, list(files))
        if request.program:
            half = trace_program(HalfProgram(program), request.shape, request.batch)
            save_program(half, work / HALF_PROGRAM_FILE)
            files[HALF_PROGRAM_FILE] = file_spec(work / HALF_PROGRAM_FILE, "fp16", "torch")
            runtime = create_runtime("torch", work / HALF_PROGRAM_FILE, spec, outputs, threads=request.threads)
            reference = _with_half(reference, runtime, outputs)
        manifest = Manifest(
            task=graph.task,
            input=spec,
            outputs=outputs,
            files=files,
            classes=tuple(classes),
            palette=tuple(palette),
            thresholds=thresholds,
            source=request.source,
            tools=tool_versions(),
        )
        save_reference(work, reference)
        write_json(work / RECEIPT_NAME, _receipt(manifest, parities, request))
        save_manifest(work, manifest)
        _swap_in(work, request.out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return manifest, parities


def check_destination(out: Path, overwrite: bool) -> None:
    """Raises ValueError if ``out`` may not be written: it exists without ``overwrite``, or is not a bundle."""
    if not out.exists():
        return
    if not (out / MANIFEST_NAME).is_file():
        raise ValueError(f"{out} exists and is no bundle; choose another --out")
    if not overwrite:
        raise ValueError(f"the bundle {out} exists; choose another --out, or replace it with --overwrite")
    # Engines of the old model go with it: a device would refuse them beside the new one.
    known = {*load_manifest(out).files, MANIFEST_NAME, REFERENCE_NAME, RECEIPT_NAME, ENGINES}
    foreign = sorted(path.name for path in out.iterdir() if path.name not in known and not _is_leftover(path))
    if foreign:
        raise ValueError(f"{out} holds files that are no part of a bundle ({', '.join(foreign[:5])}); move them first")


def _is_leftover(path: Path) -> bool:
    """What a quantization that was killed has left, and the picture of one that was not."""
    return path.name.startswith((WORK_PREFIX, FIGURE_PREFIX))


def file_spec(path: Path, precision: str, target: str) -> FileSpec:
    """Hash, size and kind of a model file."""
    return FileSpec(sha256=sha256_of(path), bytes=path.stat().st_size, precision=precision, target=target)


def tool_versions() -> dict[str, str]:
    """Versions of what shaped the files, and of Python."""
    versions = {"python": platform.python_version(), "onnx_opset": str(OPSET)}
    for name in ("vitdense", *_RECORDED_PACKAGES):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _batches(tensors: Sequence[Array], batch: int) -> list[Array]:
    """The inputs of the reference: a few batches of different images."""
    starts = range(0, min(_REFERENCE_IMAGES, len(tensors)) * batch, batch)
    return [np.concatenate([tensors[(start + place) % len(tensors)] for place in range(batch)]) for start in starts]


def _reference(tensors: Sequence[Array], runtime: Any, files: Sequence[str]) -> Reference:
    """What the float32 files, which compute the same, have to give."""
    results = [runtime(tensor) for tensor in tensors]
    outputs = {name: tuple(result[name] for result in results) for name in results[0]}
    return Reference(tuple(tensors), dict.fromkeys(files, outputs), dict.fromkeys(files, FP32_TOLERANCE))


def _with_half(reference: Reference, runtime: Any, outputs: Sequence[OutputSpec]) -> Reference:
    """The reference with what the program in float16 gives, once that agrees with float32.

    Raises:
        ParityError: It does not.
    """
    like = Reference(
        reference.inputs, {HALF_PROGRAM_FILE: reference.outputs[MODEL_FILE]}, {HALF_PROGRAM_FILE: FP16_TOLERANCE}
    )
    check = check_reference(runtime, like, HALF_PROGRAM_FILE, outputs)
    if not check.passed:
        raise ParityError(
            f"output '{check.output}' of {HALF_PROGRAM_FILE} is off by {check.error:.2e} from float32 (relative, limit "
            f"{FP16_TOLERANCE:.0e}); no bundle was written"
        )
    results = [runtime(tensor) for tensor in reference.inputs]
    found = {name: tuple(result[name] for result in results) for name in results[0]}
    return Reference(
        reference.inputs,
        {**reference.outputs, HALF_PROGRAM_FILE: found},
        {**reference.tolerances, HALF_PROGRAM_FILE: FP16_TOLERANCE},
    )


def _receipt(manifest: Manifest, parities: Sequence[Parity], request: ExportRequest) -> dict[str, Any]:
    return {
        "parity": {
            "measured": now(),
            "file": MODEL_FILE,
            "images": [path.name for path in request.images],
            "runtimes": [parity.to_dict() for parity in parities],
        },
        "size_bytes": {name: spec.bytes for name, spec in manifest.files.items()},
        "targets": {},
    }


def _swap_in(work: Path, out: Path) -> None:
    """Moves the finished folder to its place; an older bundle is removed only after the new one stands there."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(work, 0o777 & ~umask)  # mkdtemp makes it private
    if not out.exists():
        os.rename(work, out)
        return
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    os.rename(out, old)
    try:
        os.rename(work, out)
    except BaseException:
        os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)
