"""Whether an exported file computes what the trained model computes, on real images."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from deploy.detections import Detections
from deploy.postprocess import segmentation_map
from deploy.preprocess import Geometry
from deploy.reference import relative_error
from deploy.runtimes import create_runtime
from deploy.runtimes.base import Runtime
from deploy.specs import InputSpec, OutputSpec

from ..errors import ParityError
from .detection.parity import DetectionParity, compare_detections

RELATIVE_ERROR = 1e-4
ARGMAX_AGREEMENT = 0.999
RUNTIMES = ("onnxruntime", "openvino")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Parity:
    """How one runtime's outputs compare with eager torch.

    Args:
        runtime: Its name.
        images: Number of real images compared.
        relative_error: Largest ``max|a - b| / max|b|`` by output name, b being torch's.
        argmax_agreement: Smallest share of pixels of an image with equal argmax; None without logits.
        detections: Of a detector, whose outputs are compared as objects; ``relative_error`` is empty then.
    """

    runtime: str
    images: int
    relative_error: dict[str, float]
    argmax_agreement: float | None
    detections: DetectionParity | None = None

    def to_dict(self) -> dict[str, Any]:
        """For the receipt, with the limits that it had to meet."""
        limits = {"relative_error": RELATIVE_ERROR, "argmax_agreement": ARGMAX_AGREEMENT}
        record = {**asdict(self), "against": "eager torch, float32", "limits": limits}
        if self.detections is not None:
            record |= {"against": "MMDetection's prediction, float32", "detections": self.detections.to_dict()}
        return record


def installed_runtimes() -> list[str]:
    """Those of onnxruntime and openvino that are installed."""
    return [name for name in RUNTIMES if importlib.util.find_spec(name)]


def eager_outputs(model: nn.Module, tensors: Sequence[Array]) -> list[list[Array]]:
    """Runs the trained model itself, not its lowered copy: per image, its output arrays in order."""
    results = []
    with torch.no_grad():
        for tensor in tensors:
            results.append([output.numpy() for output in model(torch.from_numpy(tensor))])
    return results


def run_each(runtime: Runtime, tensors: Sequence[Array], batch: int) -> list[dict[str, Array]]:
    """Runs a model on images, ``batch`` of them at once: per image its outputs, (1, ...) each.

    The last run is filled up with the first images, and each place of a batch gets different ones.
    """
    results: list[dict[str, Array]] = []
    for start in range(0, len(tensors), batch):
        outputs = runtime(np.concatenate([tensors[place % len(tensors)] for place in range(start, start + batch)]))
        results += [{name: array[place : place + 1] for name, array in outputs.items()} for place in range(batch)]
    return results[: len(tensors)]


def check_parity(
    path: Path,
    runtime_name: str,
    tensors: Sequence[Array],
    expected: Sequence[Sequence[Array]],
    spec: InputSpec,
    outputs: Sequence[OutputSpec],
    threads: int,
) -> Parity:
    """Compares an exported file with the trained model.

    Args:
        path: The file.
        runtime_name: 'onnxruntime' or 'openvino', at float32, or 'torch' for an exported program.
        tensors: Preprocessed real images, (1, 3, H, W) each.
        expected: Per image, torch's outputs in the order of ``outputs``.
        spec: The input, as the manifest will say it.
        outputs: The outputs, likewise.
        threads: CPU threads.

    Raises:
        ParityError: A limit is missed; names the tensor and the error.
    """
    runtime = create_runtime(runtime_name, path, input_spec=spec, output_specs=outputs, threads=threads)
    errors = {output.name: 0.0 for output in outputs}
    agreement: float | None = None
    for found, references in zip(run_each(runtime, tensors, spec.shape[0]), expected, strict=True):
        for output, reference in zip(outputs, references, strict=True):
            errors[output.name] = _worse(errors[output.name], relative_error(found[output.name], reference))
            # Classes are compared only where the numbers hold; NaN has none.
            if output.kind == "logits" and errors[output.name] <= RELATIVE_ERROR:
                equal = _equal_pixels(found[output.name], reference, spec.size)
                agreement = equal if agreement is None else min(agreement, equal)
    for name, error in errors.items():
        if not error <= RELATIVE_ERROR:
            raise ParityError(
                f"output '{name}' of {path.name} on {runtime_name} is off by {error:.2e} from eager torch (relative, "
                f"limit {RELATIVE_ERROR:.0e}); no bundle was written"
            )
    if agreement is not None and agreement < ARGMAX_AGREEMENT:
        raise ParityError(
            f"{path.name} on {runtime_name} gives the class of eager torch on {agreement:.4%} of the pixels, limit "
            f"{ARGMAX_AGREEMENT:.1%}; no bundle was written"
        )
    return Parity(runtime_name, len(tensors), errors, agreement)


def check_detections(
    path: Path,
    runtime_name: str,
    tensors: Sequence[Array],
    expected: Sequence[Detections],
    geometries: Sequence[Geometry],
    mask: float,
    spec: InputSpec,
    outputs: Sequence[OutputSpec],
    threads: int,
) -> Parity:
    """Compares a detector's exported file with what MMDetection predicts.

    Args:
        path: The file.
        runtime_name: 'onnxruntime' or 'openvino', at float32, or 'torch' for an exported program.
        tensors: Preprocessed real images, (1, 3, H, W) each.
        expected: Per image MMDetection's objects.
        geometries: Per image where it lies in its tensor.
        mask: Probability from which a pixel belongs to an object.
        spec: The input, as the manifest will say it.
        outputs: The outputs, likewise.
        threads: CPU threads.

    Raises:
        ParityError: A limit is missed.
    """
    runtime = create_runtime(runtime_name, path, input_spec=spec, output_specs=outputs, threads=threads)
    found = run_each(runtime, tensors, spec.shape[0])
    where = f"{path.name} on {runtime_name}"
    parity = compare_detections(found, expected, geometries, outputs, mask, where)
    return Parity(runtime_name, len(tensors), {}, None, parity)


def _equal_pixels(found: Array, reference: Array, size: tuple[int, int]) -> float:
    """Share of the input's pixels with the same class, the logits enlarged as on the device."""
    whole = Geometry(size, size)
    pairs = zip(found, reference, strict=True)
    return float(np.mean([segmentation_map(a, whole, size) == segmentation_map(b, whole, size) for a, b in pairs]))


def _worse(first: float, second: float) -> float:
    """The larger one, where NaN is worse than any number."""
    return float(np.nan) if np.isnan(first) or np.isnan(second) else max(first, second)
