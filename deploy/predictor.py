"""A bundle, loaded and ready to take images."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from deploy.detections import MASK_THRESHOLD, Detections, read_detections
from deploy.io import read_image
from deploy.manifest import load_manifest
from deploy.postprocess import segmentation_map
from deploy.preprocess import Geometry, Preprocessor
from deploy.runtimes import ENGINE_RUNTIMES, create_runtime

_Result = TypeVar("_Result")


def default_threads() -> int:
    """Count the CPUs this process may use (a container or taskset may allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says about one image.

    Attributes:
        outputs: Output name to array, N first, as the runtime gave them.
        geometry: Where the image lay in the input.
        timings_ms: 'preprocess', 'infer' and 'postprocess'. Reading the file is not counted.
        class_map: (H0, W0) class indices for the task 'segmentation', else None.
        detections: Objects for the tasks 'detection' and 'instance_segmentation', else None.
    """

    outputs: dict[str, npt.NDArray[Any]]
    geometry: Geometry
    timings_ms: dict[str, float]
    class_map: npt.NDArray[Any] | None = None
    detections: Detections | None = None


class Predictor:
    """Load a bundle's model file, having checked its hash, and predict one image at a time.

    Args:
        bundle_dir: The bundle's folder.
        runtime: One of `deploy.runtimes.RUNTIMES`.
        precision: 'fp32', 'fp16' or 'int8'. Defaults to the runtime's preference; see `Manifest.select` and
            `deploy.engines.record.find_engine`.
        target: What the model file was made for. Defaults to the runtime's preference.
        threads: CPU threads. Defaults to the CPUs this process may use.
        score: Objects of a detector with a lower score are left out. Defaults to the manifest's threshold 'score'.

    Attributes:
        manifest: The bundle's manifest.
        filename: The model file in use.
        runtime: The loaded model.
        preprocess: Makes the input tensor of an image.

    Raises:
        ValueError: An unknown runtime, a precision the bundle lacks, a file that is not the one the manifest describes,
            or an input for more than one image.
        ImportError: The runtime is not installed.
        FileNotFoundError: The bundle or a file of it is not there.
    """

    def __init__(
        self,
        bundle_dir: str | os.PathLike[str],
        *,
        runtime: str = "openvino",
        precision: str | None = None,
        target: str | None = None,
        threads: int | None = None,
        score: float | None = None,
    ) -> None:
        self.manifest = load_manifest(bundle_dir)
        if self.manifest.input.shape[0] != 1:
            raise ValueError(
                f"the bundle takes {self.manifest.input.shape[0]} images at once, the predictor feeds one; "
                "export it with a batch of 1"
            )
        self.filename, path = self._choose(Path(bundle_dir), runtime, precision, target)
        self.runtime = create_runtime(
            runtime,
            path,
            self.manifest.input,
            self.manifest.outputs,
            threads=default_threads() if threads is None else threads,
        )
        self.preprocess = Preprocessor(self.manifest.input)
        self.score_threshold = self.manifest.thresholds.get("score", 0.0) if score is None else score

    def _choose(self, bundle: Path, runtime: str, precision: str | None, target: str | None) -> tuple[str, Path]:
        """The model file, and what the runtime loads: it, or the engine that was built from it here."""
        if runtime not in ENGINE_RUNTIMES:
            filename = self.manifest.select(runtime, precision, target)
            self.manifest.verify(bundle, filename)
            return filename, bundle / filename
        if target is not None:
            raise ValueError(f"target {target!r}: {runtime} loads the engines of the bundle; choose by precision")
        from deploy.engines.device import read_device
        from deploy.engines.record import find_engine, verify_engine
        from deploy.engines.releases import runtime_version

        version = runtime_version(runtime)
        record = find_engine(bundle, self.manifest, read_device(), runtime, version, precision)
        return record.model, verify_engine(bundle, record)

    def predict(self, image: str | os.PathLike[str] | npt.NDArray[np.uint8]) -> Prediction:
        """Predict one image.

        Args:
            image: A path, or (H, W, 3) uint8 BGR.

        Raises:
            FileNotFoundError: There is no such image.
            ValueError: The image cannot be read, or has another shape or dtype.
        """
        pixels = image if isinstance(image, np.ndarray) else read_image(image)
        timings: dict[str, float] = {}
        tensor, geometry = _timed(timings, "preprocess", lambda: self.preprocess(pixels))
        outputs = _timed(timings, "infer", lambda: self.runtime(tensor))
        result = _timed(timings, "postprocess", lambda: self.postprocess(outputs, geometry))
        if isinstance(result, Detections):
            return Prediction(outputs, geometry, timings, detections=result)
        return Prediction(outputs, geometry, timings, class_map=result)

    def postprocess(
        self, outputs: dict[str, npt.NDArray[Any]], geometry: Geometry
    ) -> npt.NDArray[Any] | Detections | None:
        """Turn outputs into the class map, (H0, W0), of a segmenter or the objects of a detector; None for features."""
        if self.manifest.task == "segmentation":
            name = next(spec.name for spec in self.manifest.outputs if spec.kind == "logits")
            return segmentation_map(outputs[name][0], geometry, self.manifest.input.size)
        if self.manifest.task == "features":
            return None
        mask_threshold = self.manifest.thresholds.get("mask", MASK_THRESHOLD)
        found = read_detections(outputs, self.manifest.outputs, geometry, self.score_threshold, mask_threshold)
        if len(found) and found.labels.max() >= len(self.manifest.classes):
            raise ValueError(
                f"the model found class {found.labels.max()}, the manifest names {len(self.manifest.classes)}"
            )
        return found

    def describe(self) -> dict[str, Any]:
        """Return what a measurement has to state: the file, its precision and hash, and the runtime's own account."""
        spec = self.manifest.files[self.filename]
        return {
            "file": self.filename,
            "precision": spec.precision,
            "sha256": spec.sha256,
            "input_shape": list(self.manifest.input.shape),
            **self.runtime.describe(),
        }


def _timed(timings: dict[str, float], stage: str, work: Callable[[], _Result]) -> _Result:
    start = time.perf_counter()
    result = work()
    timings[stage] = (time.perf_counter() - start) * 1e3
    return result
