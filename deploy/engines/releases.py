"""Where TensorRT releases differ in what they are asked for."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from deploy.engines.torch_compile import import_torch_tensorrt

INSTALL = "it comes with JetPack (apt install python3-libnvinfer); elsewhere: pip install tensorrt"
RTX = "tensorrt_rtx"


@dataclass(frozen=True)
class Release:
    """A range of releases that are asked alike.

    Attributes:
        first: (major, minor) of the first.
        weakly_typed: Whether the builder chooses precisions that flags allow.
        strongly_typed: Whether it can be told to compute as the file says.
        prefers_strong: Whether it is, unless the user asks otherwise.
        explicit_batch: Whether a network has to be asked for explicit batch dimensions.
        progress: Whether a build reports its progress.
        node_names: Whether the parser names the node that it does not understand.
    """

    first: tuple[int, int]
    weakly_typed: bool
    strongly_typed: bool
    prefers_strong: bool
    explicit_batch: bool
    progress: bool
    node_names: bool


# Each row is compared with the published bindings in tests/deploy/engines.
RELEASES = (
    Release((8, 6), True, False, False, explicit_batch=True, progress=False, node_names=False),
    Release((10, 0), True, True, False, explicit_batch=False, progress=True, node_names=True),
    # Weak typing is deprecated from here on.
    Release((10, 12), True, True, True, explicit_batch=False, progress=True, node_names=True),
    # Without precision flags and calibrators.
    Release((11, 0), False, True, True, explicit_batch=False, progress=True, node_names=True),
)


def import_tensorrt() -> Any:
    """Import TensorRT's Python bindings.

    Raises:
        ImportError: They are not there; says where they come from.
    """
    try:
        module = importlib.import_module("tensorrt")
    except ImportError as error:
        raise ImportError(f"TensorRT's Python bindings are not installed ({error}): {INSTALL}") from error
    if not hasattr(module, "Builder"):  # a folder of that name is an empty namespace package
        raise ImportError(f"the module tensorrt at {list(module.__path__)} is not TensorRT: {INSTALL}")
    return module


def runtime_version(runtime: str) -> str:
    """Return the version of TensorRT, or of Torch-TensorRT where `runtime` is 'torch-tensorrt'.

    Raises:
        ImportError: It is not installed.
        ValueError: Torch-TensorRT finds no GPU.
    """
    return str((import_tensorrt() if runtime == "tensorrt" else import_torch_tensorrt()).__version__)


def version_of(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version such as '10.3.0.30'.

    Raises:
        ValueError: It is none.
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"TensorRT's version is {text!r}; expected something like 10.3.0")
    return int(found.group(1)), int(found.group(2))


def release_of(trt: Any) -> Release:
    """Return how to ask the TensorRT that was found.

    Args:
        trt: The module `tensorrt`, or `tensorrt_rtx`, whose interface is that of the last row whatever its version.

    Raises:
        ValueError: It is older than the first row.
    """
    if trt.__name__ == RTX:
        return RELEASES[-1]
    version = version_of(trt.__version__)
    rows = [release for release in RELEASES if release.first <= version]
    if not rows:
        first = ".".join(map(str, RELEASES[0].first))
        raise ValueError(
            f"TensorRT {trt.__version__} is too old; expected {first} or newer. On a Jetson that is JetPack 6 "
            "(JetPack 5 is not supported)"
        )
    return rows[-1]
