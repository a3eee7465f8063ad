"""Compiling an exported program with Torch-TensorRT on the device, for those who stay in Python."""

from __future__ import annotations

import importlib
import inspect
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.specs import InputSpec

INSTALL = (
    "a release of torch-tensorrt fits one of PyTorch. On JetPack 6 (Orin) take 2.8 of both, on JetPack 7 (Thor) and "
    "x86: pip install torch-tensorrt"
)

GPU = "cuda"  # what PyTorch calls it


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
        module: It, ready to be called and saved.
        seconds: How long it took.
        engines: TensorRT engines in it.
        in_torch: Operators that TensorRT does not take, by name, and how often; PyTorch runs them between engines.
    """

    module: Any
    seconds: float
    engines: int
    in_torch: dict[str, int]


def import_torch_tensorrt() -> Any:
    """Import Torch-TensorRT, having checked what it needs: PyTorch, and a driver with a GPU.

    Raises:
        ImportError: A package is missing, or does not fit the others.
        ValueError: PyTorch sees no GPU; Torch-TensorRT cannot even be imported then.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"PyTorch is not installed ({error}), which Torch-TensorRT needs: {INSTALL}") from error
    if not torch.cuda.is_available():
        built = torch.version.cuda
        reason = f"it was built for CUDA {built}, the driver is missing or older" if built else "it is the CPU's build"
        raise ValueError(f"PyTorch {torch.__version__} sees no GPU ({reason}), which Torch-TensorRT needs: {INSTALL}")
    try:
        return importlib.import_module("torch_tensorrt")
    except Exception as error:  # it raises bare Exceptions where TensorRT's libraries are missing
        raise ImportError(
            f"Torch-TensorRT is not there, or does not fit PyTorch {torch.__version__} ({error}): {INSTALL}"
        ) from error


def compile_program(path: Path, spec: InputSpec, workspace: int) -> Compiled:
    """Compile a program; every layer computes in the type that is written in it.

    Args:
        path: The program. It is code: its hash has to be checked before.
        spec: The manifest's input.
        workspace: Bytes that kernels may use.

    Raises:
        ValueError: It cannot be loaded or compiled.
        ImportError: Torch-TensorRT is not installed.
    """
    compiler, torch = import_torch_tensorrt(), importlib.import_module("torch")
    start = time.perf_counter()
    try:
        program = torch.export.load(str(path))
        program = importlib.import_module("torch.export.passes").move_to_device_pass(program, GPU)
        image = torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=GPU)
        options: dict[str, Any] = {"inputs": [image], "workspace_size": workspace, "disable_tf32": True}
        # The default from 2.10 on; the only way, without an option, from 2.13 on.
        if "use_explicit_typing" in inspect.signature(compiler.dynamo.compile).parameters:
            options["use_explicit_typing"] = True
        module = compiler.dynamo.compile(program, **options)
    except Exception as error:  # of any kind: converters, TensorRT, CUDA's memory
        raise ValueError(f"Torch-TensorRT {compiler.__version__} cannot compile {path.name}: {error}") from error
    engines, in_torch = split_of(module)
    if not engines:
        raise ValueError(f"Torch-TensorRT {compiler.__version__} put nothing of {path.name} into an engine")
    return Compiled(module, round(time.perf_counter() - start, 1), engines, in_torch)


def split_of(module: Any) -> tuple[int, dict[str, int]]:
    """Count the engines of a compiled module, and the operators that are left to PyTorch.

    Its children are engines, whose class is named after TensorRT, and graphs of PyTorch; operators may also stand
    between them.
    """
    engines, left = 0, [module.graph]
    for child in module.children():
        if "TensorRT" in type(child).__name__:
            engines += 1
        elif hasattr(child, "graph"):
            left.append(child.graph)
    in_torch: dict[str, int] = {}
    for graph in left:
        for node in graph.nodes:
            if node.op == "call_function" and "getitem" not in str(node.target):
                in_torch[str(node.target)] = in_torch.get(str(node.target), 0) + 1
    return engines, dict(sorted(in_torch.items()))


def save_compiled(compiled: Compiled, spec: InputSpec, path: Path) -> None:
    """Write a compiled program, engines included.

    Raises:
        ValueError: Torch-TensorRT cannot write it.
    """
    compiler, torch = import_torch_tensorrt(), importlib.import_module("torch")
    image = torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=GPU)
    try:
        compiler.save(compiled.module, str(path), inputs=[image])
    except Exception as error:  # of any kind: of torch.export, of the disk
        raise ValueError(f"Torch-TensorRT {compiler.__version__} cannot save the compiled program: {error}") from error
