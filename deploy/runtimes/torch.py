"""PyTorch, running an exported program on the CPU, or one that Torch-TensorRT compiled on the GPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.engines.torch_compile import GPU, import_torch_tensorrt
from deploy.runtimes.base import Array, Port, check_ports, check_tensor, check_threads
from deploy.specs import InputSpec, OutputSpec

INSTALL = "pip install torch"


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"the torch runtime is not installed ({error}); run: {INSTALL}") from error


class TorchRuntime:
    """An exported program. It is code: its hash has to be checked before.

    Args:
        model_path: The program, `.pt2`.
        input_spec: The manifest's input.
        output_specs: The manifest's outputs, in the order in which the program gives them.
        threads: CPU threads.
        name: 'torch', or 'torch-tensorrt' for a compiled program, which holds TensorRT engines.

    Raises:
        ValueError: PyTorch cannot load the file, or it differs from the manifest.
        ImportError: PyTorch or Torch-TensorRT is not installed.
    """

    def __init__(
        self,
        model_path: Path,
        input_spec: InputSpec,
        output_specs: Sequence[OutputSpec],
        *,
        threads: int,
        name: str = "torch",
    ) -> None:
        check_threads(threads)
        self.name = name
        self._torch = _import_torch()
        self._device, self._version = "cpu", str(self._torch.__version__)
        if name == "torch-tensorrt":
            compiler = import_torch_tensorrt()  # knows the engines in the program
            self._device, self._version = GPU, str(compiler.__version__)
        try:
            program = self._torch.export.load(str(model_path))
        except Exception as error:  # zip, pickle and schema errors, which differ between versions
            raise ValueError(f"PyTorch {self._torch.__version__} cannot load {model_path}: {error}") from error
        nodes = {node.name: node for node in program.graph.nodes}
        inputs = [self._port(nodes[name], input_spec.name) for name in program.graph_signature.user_inputs]
        given = program.graph_signature.user_outputs
        names = [spec.name for spec in output_specs] if len(given) == len(output_specs) else given
        outputs = [self._port(nodes[node], name) for node, name in zip(given, names, strict=True)]
        check_ports(str(model_path), inputs, outputs, input_spec, output_specs)
        self._module = program.module()
        self._input_spec, self._output_names = input_spec, [spec.name for spec in output_specs]
        self._threads = threads

    @staticmethod
    def _port(node: Any, name: str) -> Port:
        value = node.meta["val"]
        shape = tuple(size if isinstance(size, int) else None for size in value.shape)
        return Port(frozenset([name]), shape, str(value.dtype).removeprefix("torch."))

    def __call__(self, tensor: Array) -> dict[str, Array]:
        """Run the model once; see `Runtime`."""
        check_tensor(tensor, self._input_spec)
        self._torch.set_num_threads(self._threads)
        with self._torch.no_grad():
            values = self._module(self._torch.from_numpy(tensor).to(self._device))
            values = values if isinstance(values, list | tuple) else (values,)
            values = [value.cpu() for value in values]  # waits for the GPU
        return {name: value.numpy().copy() for name, value in zip(self._output_names, values, strict=True)}

    def describe(self) -> dict[str, Any]:
        """Return version, device and threads; float operations run as stored."""
        return {
            "runtime": self.name,
            "version": self._version,
            "device": "cpu" if self.name == "torch" else str(self._torch.cuda.get_device_name()),
            "threads": self._threads,
            "float_precision": "as stored in the file",
        }
