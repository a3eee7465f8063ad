"""Checkpoints of numpy arrays: .npz of the original JAX releases, .pkl of detectron2's model zoo.

Nothing in them is executed: .npz is read without pickled objects, .pkl by an unpickler that knows numpy arrays only.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _SCALAR for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "OrderedDict"): dict,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how pickle protocol 2 writes the bytes of an array
            return _encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return _ALLOWED[module, name]


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "ascii")


def read_arrays(path: Path) -> dict[str, Any]:
    """Reads a .npz or .pkl file of arrays; detectron2's holds them under 'model'.

    Args:
        path: The file.

    Returns:
        Its content with every array as a tensor.

    Raises:
        ValueError: Damaged, or holding more than arrays, numbers and texts.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                content: Any = {name: archive[name] for name in archive.files}
        else:
            with open(path, "rb") as stream:
                content = _ArrayUnpickler(stream, encoding="latin1").load()
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, expected a dict of arrays")
        return _tensors(content)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"checkpoint {path} is refused: it holds more than arrays, and reading it could run code ({error})"
        ) from None
    except (
        ValueError,
        EOFError,
        OSError,
        LookupError,
        AttributeError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
        MemoryError,
    ) as error:
        raise ValueError(f"checkpoint {path} is damaged or of another kind: {error}") from None


def _tensors(content: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors, in dicts of any depth; an array of objects has no tensor and is an error."""
    result: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            result[name] = _tensors(value)
        elif isinstance(value, np.ndarray):
            result[name] = torch.from_numpy(np.ascontiguousarray(value))
        else:
            result[name] = value
    return result
