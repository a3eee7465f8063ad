"""ONNX Runtime on the CPU, and on a GPU through CUDA or TensorRT."""

import importlib
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploy.runtimes.base import Array, Port, check_ports, check_tensor, check_threads
from deploy.specs import InputSpec, OutputSpec

INSTALL = "pip install onnxruntime"
# Runtime to the providers of its session, the one that it is named for first; the others take what that cannot.
PROVIDERS = {
    "onnxruntime": ["CPUExecutionProvider"],
    "onnxruntime-cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    "onnxruntime-tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}
# How ONNX Runtime spells the tensor types that a bundle may have.
DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}


def _import_onnxruntime() -> Any:
    try:
        module = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError(f"the onnxruntime runtime is not installed ({error}); run: {INSTALL}") from error
    if not hasattr(module, "InferenceSession"):
        raise ImportError(f"the module onnxruntime at {list(module.__path__)} is not the runtime; run: {INSTALL}")
    return module


def _port(value: Any) -> Port:
    # A dimension that is not static is a string or None.
    shape = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return Port(frozenset([value.name]), shape, DTYPES.get(value.type, value.type))


class ONNXRuntime:
    """An inference session with its provider and threads set explicitly.

    Args:
        model_path: The ONNX file.
        input_spec: The manifest's input.
        output_specs: The manifest's outputs.
        threads: CPU threads within an operation; operations run one after another.
        name: Which providers: a key of `PROVIDERS`.

    Raises:
        ValueError: ONNX Runtime cannot load the file, has not got the provider, or the file differs from the manifest.
        ImportError: ONNX Runtime is not installed.
    """

    def __init__(
        self,
        model_path: Path,
        input_spec: InputSpec,
        output_specs: Sequence[OutputSpec],
        *,
        threads: int,
        name: str = "onnxruntime",
    ) -> None:
        check_threads(threads)
        self.name = name
        providers = PROVIDERS[name]
        ort = _import_onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3  # errors: it warns of every float16 constant that it does not fold
        try:
            self._session = ort.InferenceSession(str(model_path), options, providers=providers)
        except Exception as error:  # its exception types derive from Exception alone and differ between versions
            raise ValueError(f"ONNX Runtime {ort.__version__} cannot load {model_path}: {error}") from error
        # A session that cannot have the provider it was asked for takes another without an error.
        if self._session.get_providers()[: len(providers)] != providers:
            raise ValueError(
                f"ONNX Runtime {ort.__version__} runs on {self._session.get_providers()} although {providers} were "
                "asked for; on a Jetson take NVIDIA's build of onnxruntime-gpu, elsewhere pip install onnxruntime-gpu, "
                "and see python -m deploy.doctor"
            )
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        check_ports(str(model_path), [_port(v) for v in inputs], [_port(v) for v in outputs], input_spec, output_specs)
        self._version = str(ort.__version__)
        self._threads = threads
        self._input_spec = input_spec
        self._output_names = [spec.name for spec in output_specs]

    def __call__(self, tensor: Array) -> dict[str, Array]:
        """Run the model once; see `Runtime`."""
        check_tensor(tensor, self._input_spec)
        values = self._session.run(self._output_names, {self._input_spec.name: np.ascontiguousarray(tensor)})
        return dict(zip(self._output_names, values, strict=True))

    def describe(self) -> dict[str, Any]:
        """Return version, device, providers in force (read back) and threads; float operations run as stored."""
        return {
            "runtime": self.name,
            "version": self._version,
            "device": platform.machine(),
            "providers": self._session.get_providers(),
            "threads": self._threads,
            "float_precision": "as stored in the file",
        }
