"""TensorRT on the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploy.engines.build import make_log
from deploy.engines.releases import import_tensorrt
from deploy.runtimes.base import Array, Port, check_ports, check_tensor
from deploy.runtimes.cuda import Buffer, capture, check, gpu_properties, import_cuda
from deploy.specs import InputSpec, OutputSpec


class TensorRTRuntime:
    """An engine with pinned buffers and a stream of its own; a call launches a CUDA graph, where one can be captured.

    The engine is trusted: `deploy.engines.record.verify_engine` has to stand before.

    Args:
        engine_path: The serialized engine.
        input_spec: The manifest's input.
        output_specs: The manifest's outputs.

    Raises:
        ValueError: TensorRT cannot load the engine, it differs from the manifest, or CUDA fails.
        ImportError: TensorRT or cuda-python is not installed.
    """

    name = "tensorrt"

    def __init__(self, engine_path: Path, input_spec: InputSpec, output_specs: Sequence[OutputSpec]) -> None:
        trt, self._cuda = import_tensorrt(), import_cuda()
        self._log = make_log(trt)
        self._runtime = trt.Runtime(self._log)  # must outlive the engine
        self._engine = self._runtime.deserialize_cuda_engine(engine_path.read_bytes())
        if self._engine is None:
            reasons = "; ".join(self._log.errors[-2:]) or "it gives no reason"
            raise ValueError(f"TensorRT {trt.__version__} cannot load {engine_path}: {reasons}; build it again")
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        inputs = [name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        outputs = [name for name in names if name not in inputs]
        wanted = {spec.name: spec.dtype for spec in output_specs}
        check_ports(
            str(engine_path),
            [self._port(trt, name, {}) for name in inputs],
            [self._port(trt, name, wanted) for name in outputs],
            input_spec,
            output_specs,
        )
        self._input_spec, self._output_specs = input_spec, tuple(output_specs)
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise ValueError(f"TensorRT has no memory to run {engine_path}: {'; '.join(self._log.errors[-2:])}")
        self._stream = check(self._cuda, self._cuda.cudaStreamCreate())
        self._buffers = {}
        for name in names:
            dtype = str(np.dtype(trt.nptype(self._engine.get_tensor_dtype(name))))
            self._buffers[name] = Buffer(self._cuda, tuple(self._engine.get_tensor_shape(name)), dtype)
            self._context.set_tensor_address(name, self._buffers[name].device)
        # A first run outside of a graph: what TensorRT sets up then cannot be recorded.
        self._enqueue()
        self._synchronize()
        self._graph: Any = None
        with contextlib.suppress(ValueError):  # an engine that cannot be captured still runs, call by call
            self._graph = capture(self._cuda, self._stream, self._enqueue)
        self._version, self._gpu = str(trt.__version__), gpu_properties()
        self._engine_name = engine_path.name

    def _port(self, trt: Any, name: str, wanted: dict[str, str]) -> Port:
        dtype = str(np.dtype(trt.nptype(self._engine.get_tensor_dtype(name))))
        # TensorRT 8 knows no int64 and gives int32 for it; a call gives what the manifest says.
        if {dtype, wanted.get(name)} == {"int32", "int64"}:
            dtype = wanted[name]
        shape = tuple(int(dim) if dim >= 0 else None for dim in self._engine.get_tensor_shape(name))
        return Port(frozenset([name]), shape, dtype)

    def _enqueue(self) -> None:
        self._buffers[self._input_spec.name].upload(self._stream)
        if not self._context.execute_async_v3(int(self._stream)):
            raise ValueError(f"TensorRT cannot run the engine: {'; '.join(self._log.errors[-2:])}")
        for spec in self._output_specs:
            self._buffers[spec.name].download(self._stream)

    def _synchronize(self) -> None:
        check(self._cuda, self._cuda.cudaStreamSynchronize(self._stream))

    def __call__(self, tensor: Array) -> dict[str, Array]:
        """Run the model once; see `Runtime`."""
        check_tensor(tensor, self._input_spec)
        self._buffers[self._input_spec.name].host[...] = tensor
        if self._graph is None:
            self._enqueue()
        else:
            check(self._cuda, self._cuda.cudaGraphLaunch(self._graph, self._stream))
        self._synchronize()
        # The next call writes to the same memory: astype copies.
        return {spec.name: self._buffers[spec.name].host.astype(spec.dtype) for spec in self._output_specs}

    def describe(self) -> dict[str, Any]:
        """Return version, device and how a call runs; precisions stand in the engine's record."""
        return {
            "runtime": self.name,
            "version": self._version,
            "device": f"{self._gpu['gpu']} ({self._gpu['compute_capability']})",
            "driver": self._gpu["driver"],
            "engine": self._engine_name,
            "cuda_graph": self._graph is not None,
            "threads": 1,
        }

    def close(self) -> None:
        """Give the GPU's memory back. The runtime must not be used any more."""
        if self._graph is not None:
            check(self._cuda, self._cuda.cudaGraphExecDestroy(self._graph))
        for buffer in self._buffers.values():
            buffer.free()
        check(self._cuda, self._cuda.cudaStreamDestroy(self._stream))
        del self._context, self._engine
