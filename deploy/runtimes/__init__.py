"""Runtimes, each in a module of its own that is imported only when it is asked for."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from deploy.runtimes.base import Runtime
from deploy.specs import InputSpec, OutputSpec, check_choice

__all__ = [
    "DEFAULT_RUNTIME",
    "ENGINE_RUNTIMES",
    "FILE_RUNTIMES",
    "RUNTIMES",
    "Runtime",
    "create_runtime",
    "default_runtime",
]

# Which load the bundle's files.
FILE_RUNTIMES = ("openvino", "onnxruntime", "onnxruntime-cuda", "onnxruntime-tensorrt", "torch")
# Which load engines that were built from them on the device.
ENGINE_RUNTIMES = {"tensorrt": "TensorRT", "torch-tensorrt": "Torch-TensorRT"}
RUNTIMES = (*FILE_RUNTIMES, *ENGINE_RUNTIMES)


DEFAULT_RUNTIME = "tensorrt where the bundle has engines, else openvino, else onnxruntime, as they are installed"


def default_runtime(bundle: str | os.PathLike[str]) -> str:
    """Choose the runtime that `DEFAULT_RUNTIME` says; openvino if there is none at all."""
    choices = ["tensorrt"] * any(Path(bundle).glob("engines/*.engine")) + ["openvino", "onnxruntime"]
    for name in choices:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:  # a folder of that name is no package
            return name
    return "openvino"


def create_runtime(
    name: str,
    model_path: str | os.PathLike[str],
    input_spec: InputSpec,
    output_specs: Sequence[OutputSpec],
    *,
    threads: int,
) -> Runtime:
    """Load a model file into a runtime.

    Args:
        name: One of `RUNTIMES`.
        model_path: The ONNX file, or the engine of TensorRT. Its hash is not checked here; see `Manifest.verify` and
            `deploy.engines.record.verify_engine`.
        input_spec: The manifest's input; the file must agree with it.
        output_specs: The manifest's outputs; the file must have them, and a call returns exactly these.
        threads: CPU threads, 1 or more; of no meaning to engines.

    Raises:
        ValueError: An unknown name, a file the runtime cannot load, or one that differs from the manifest.
        ImportError: The runtime is not installed; says how to install it.
        FileNotFoundError: There is no such file.
    """
    check_choice("runtime", name, RUNTIMES)
    path = Path(model_path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    if name == "openvino":
        from deploy.runtimes.openvino import OpenVINORuntime

        return OpenVINORuntime(path, input_spec, output_specs, threads=threads)
    if name == "tensorrt":
        from deploy.runtimes.tensorrt import TensorRTRuntime

        return TensorRTRuntime(path, input_spec, output_specs)
    if name in ("torch", "torch-tensorrt"):
        from deploy.runtimes.torch import TorchRuntime

        return TorchRuntime(path, input_spec, output_specs, threads=threads, name=name)
    from deploy.runtimes.onnxruntime import ONNXRuntime

    return ONNXRuntime(path, input_spec, output_specs, threads=threads, name=name)
