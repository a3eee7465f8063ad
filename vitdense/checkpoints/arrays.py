"""Checkpoints of numpy arrays: .npz of the original JAX releases, .pkl of detectron2's model zoo.

Nothing in them is executed: .npz is read without pickled objects, .pkl by an unpickler that knows numpy arrays only.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


class _DType:
    """A plain numeric type, named by a pickle; numpy's own would take flags that make bytes into pointers."""

    def __init__(self, name: str, align: bool = False, copy: bool = False) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[<>|=]?[fiu][1248]|[<>|=]?b1", name):
            raise pickle.UnpicklingError(f"arrays of type {name!r} are not allowed")
        self.value = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1] if len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"byte order {order!r} is not allowed")
        self.value = self.value.newbyteorder(order)


class _Array:
    """Takes the pickled state of a numpy array: version, shape, type, whether in Fortran's order, bytes."""

    value = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DType):
            raise pickle.UnpicklingError("arrays of objects are not allowed")
        data = data.encode("latin1") if isinstance(data, str) else data
        self.value = np.frombuffer(data, dtype.value).reshape(shape, order="F" if fortran else "C").copy()


class _Call:
    """A function that a pickle may call, and whose attributes it cannot set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError(f"setting {name!r} is not allowed")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("setting attributes is not allowed")


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _DType):
        raise pickle.UnpicklingError("scalars of objects are not allowed")
    return np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, dtype.value)[0]


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "ascii")


_ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Call(lambda *_: _Array()) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Call(_scalar) for core in ("core", "_core")},
    ("numpy", "ndarray"): None,  # an argument of _reconstruct
    ("numpy", "dtype"): _Call(_DType),
    ("collections", "OrderedDict"): dict,
    ("_codecs", "encode"): _Call(_encode),  # how pickle protocol 2 writes the bytes of an array
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return _ALLOWED[module, name]


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
    except Exception as error:  # noqa: BLE001 (what zip, lzma, tokenizer and unpickler raise on noise has no end)
        raise ValueError(f"checkpoint {path} is damaged or of another kind: {error}") from None


def _tensors(content: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tensors, in dicts of any depth; an array of objects has no tensor and is an error."""
    return {name: _tensor(value) for name, value in content.items()}


def _tensor(value: Any) -> Any:
    if isinstance(value, dict):
        return _tensors(value)
    if isinstance(value, list | tuple):
        return type(value)(_tensor(item) for item in value)
    if isinstance(value, np.ndarray | _Array):
        array = value.value if isinstance(value, _Array) else value
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    if value is None or isinstance(value, str | bytes | bool | int | float | np.generic):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__.strip('_')} is not allowed")
