"""OpenVINO on the CPU."""

import importlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploy.runtimes.base import Array, Port, check_ports, check_tensor, check_threads
from deploy.specs import InputSpec, OutputSpec

INSTALL = "pip install openvino"


def _import_openvino() -> Any:
    try:
        module = importlib.import_module("openvino")
    except ImportError as error:
        raise ImportError(f"the openvino runtime is not installed ({error}); run: {INSTALL}") from error
    # A folder named openvino on the path imports as an empty namespace package when the real one is absent.
    if not hasattr(module, "Core"):
        raise ImportError(f"the module openvino found at {list(module.__path__)} is not the runtime; run: {INSTALL}")
    return module


def _port(port: Any) -> Port:
    shape = tuple(None if dim.is_dynamic else int(dim.get_length()) for dim in port.partial_shape)
    return Port(frozenset(port.names), shape, str(np.dtype(port.element_type.to_dtype())))


class OpenVINORuntime:
    """A model compiled for the CPU, with everything that changes its numbers or its speed set explicitly.

    Floating-point operations run in FP32 (the default is bfloat16 where the CPU has it, which changes results).
    Quantized operations run in INT8 regardless: the hint concerns only what the model leaves in floating point, and
    `describe()["operations"]` counts what the compiled model really executes.

    Args:
        model_path: The ONNX file.
        input_spec: The manifest's input.
        output_specs: The manifest's outputs.
        threads: CPU threads.

    Raises:
        ValueError: OpenVINO cannot load the file, or it differs from the manifest.
        ImportError: OpenVINO is not installed.
    """

    name = "openvino"

    def __init__(
        self, model_path: Path, input_spec: InputSpec, output_specs: Sequence[OutputSpec], *, threads: int
    ) -> None:
        check_threads(threads)
        ov = _import_openvino()
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        core = ov.Core()
        try:
            model = core.read_model(str(model_path))
        except RuntimeError as error:
            raise ValueError(f"OpenVINO {ov.get_version()} cannot read {model_path}: {error}") from error
        check_ports(
            str(model_path),
            [_port(p) for p in model.inputs],
            [_port(p) for p in model.outputs],
            input_spec,
            output_specs,
        )
        try:
            self._compiled = core.compile_model(model, "CPU", settings)
        except RuntimeError as error:
            raise ValueError(f"OpenVINO {ov.get_version()} cannot compile {model_path}: {error}") from error
        self._version = str(ov.get_version())
        self._device = str(core.get_property("CPU", "FULL_DEVICE_NAME"))
        self._input_spec = input_spec
        self._output_names = [spec.name for spec in output_specs]
        self._request = self._compiled.create_infer_request()

    def __call__(self, tensor: Array) -> dict[str, Array]:
        """Run the model once; see `Runtime`."""
        check_tensor(tensor, self._input_spec)
        # The input is only read; the outputs lie in the request's memory, which the next call reuses: hence the copies.
        self._request.infer({self._input_spec.name: np.ascontiguousarray(tensor)}, share_inputs=True)
        return {name: np.array(self._request.get_tensor(name).data) for name in self._output_names}

    def describe(self) -> dict[str, Any]:
        """Return version, device, the settings in force (read back) and how many operations run in which type."""
        read_back = self._compiled.get_property
        infos = [operation.get_rt_info() for operation in self._compiled.get_runtime_model().get_ordered_ops()]
        executed = [info for info in infos if info["layerType"].value not in ("Const", "Input", "Output")]
        operations = Counter(str(info["runtimePrecision"].value) for info in executed)
        return {
            "runtime": self.name,
            "version": self._version,
            "device": self._device,
            "threads": int(read_back("INFERENCE_NUM_THREADS")),
            "streams": int(str(read_back("NUM_STREAMS"))),
            "performance_hint": str(read_back("PERFORMANCE_HINT")),
            "float_precision": str(np.dtype(read_back("INFERENCE_PRECISION_HINT").to_dtype())),
            "operations": dict(operations.most_common()),
        }
