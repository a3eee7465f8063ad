"""The one reader of checkpoint files: it never executes what a file says.

MMEngine's own loader falls back to full unpickling, so a hostile file runs; and on ``--resume`` it executes the config
text that the checkpoint carries. Every command of this project reads through :func:`read_checkpoint` instead;
:func:`use_safe_loader` puts it under MMEngine's ``load_from``, ``--resume`` and 'Pretrained'.
"""

from __future__ import annotations

import argparse
import codecs
import collections
import contextlib
import pickle
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner.checkpoint import CheckpointLoader

from .arrays import read_arrays

_PICKLED = (".pth", ".pt", ".bin", ".ckpt")
_ARRAYS = (".npz", ".pkl")  # of numpy arrays: Flax releases and detectron2's model zoo
# What unpickling noise raises, a truncated file or one that is no checkpoint at all.
_DAMAGED = (
    RuntimeError,
    EOFError,
    OSError,
    LookupError,
    AttributeError,
    TypeError,
    AssertionError,
    ArithmeticError,
    struct.error,
)
DELTA_FORMAT = "vitdense-delta-1"  # format of the metadata of a delta, see trained.py


def read_checkpoint(path: str | Path, *, trust_pickle: bool = False) -> dict[str, Any]:
    """Reads a checkpoint (.pth, .pt, .bin, .ckpt, .safetensors, or .npz and .pkl of arrays) onto the CPU.

    Args:
        path: The file.
        trust_pickle: Unpickle arbitrary objects, which executes whatever the file says. Only for a file you made
            yourself. Defaults to False.

    Returns:
        What the file holds; for a safetensors file its tensors by name.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Not a checkpoint, damaged, or holding more than tensors, numbers and MMEngine's log history.
    """
    if "://" in str(path):
        raise ValueError(f"checkpoint {path} is an address; download the file and give its path")
    path = expanded(path)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist or is no file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in _ARRAYS:
        return read_arrays(path)
    if path.suffix not in _PICKLED:
        raise ValueError(
            f"checkpoint {path.name} has the ending '{path.suffix}'; "
            f"expected .safetensors, {', '.join(_PICKLED + _ARRAYS)}"
        )
    with open(path, "rb") as file:
        start = file.read(2)
    # A checkpoint is a zip archive or, from old versions of torch, a pickle; a web page or a pointer file is neither.
    if start and start != b"PK" and start[:1] != b"\x80":
        raise ValueError(
            f"checkpoint {path} is no checkpoint: it starts with {start!r} (a web page? a Git LFS pointer?)"
        )
    try:
        with _allowed_globals():
            checkpoint = torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"checkpoint {path} is refused: it holds more than tensors, numbers and MMEngine's log history, and "
            f"reading it could run code ({_first_reason(error)}). If the file is yours, make a safe one of it: "
            "tools/convert_checkpoint.py SRC DST.pth --config CONFIG --trust-pickle"
        ) from None
    except _DAMAGED as error:
        raise ValueError(f"checkpoint {path} is damaged or incomplete: {_first_reason(error)}") from None
    if not isinstance(checkpoint, dict):
        raise ValueError(f"checkpoint {path} holds a {type(checkpoint).__name__}; expected a dict of tensors")
    return checkpoint


def expanded(path: str | Path) -> Path:
    """The path with ``~`` replaced.

    Raises:
        ValueError: There is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"path {path}: {error}") from None


def state_dict_of(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, whether bare or under 'state_dict', 'model', 'teacher' or 'module'.

    Raises:
        ValueError: The checkpoint holds no tensors, names that are no text, or something else under the name of a
            weight.
    """
    for key in ("state_dict", "model", "teacher", "module"):
        if isinstance(checkpoint.get(key), dict):
            checkpoint = checkpoint[key]
            break
    tensors = {name: value for name, value in checkpoint.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise ValueError(f"the checkpoint holds no tensors; its keys are {sorted(map(str, checkpoint))[:8]}")
    check_weights(tensors)
    # Epochs, options and states of optimizers stand beside weights; an array or a dotted name is a weight gone astray.
    for name, value in checkpoint.items():
        if name not in tensors and (isinstance(value, np.ndarray) or "." in str(name)):
            raise ValueError(f"the checkpoint holds a {type(value).__name__} under {name!r}, expected a tensor")
    return tensors


def check_weights(state: Mapping[str, torch.Tensor]) -> None:
    """Refuses what no file of weights holds.

    Raises:
        ValueError: A name that is no text, or a value that is no dense tensor in memory.
    """
    for name, value in state.items():
        if not isinstance(name, str):
            raise ValueError(f"the weights hold the name {name!r}, expected a text")
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}, expected a tensor")
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            kind = "quantized" if value.is_quantized else "on the meta device" if value.is_meta else str(value.layout)
            raise ValueError(f"{name} is {kind}; expected a dense tensor of numbers")


def use_safe_loader() -> None:
    """Makes MMEngine read every checkpoint through :func:`read_checkpoint`, for this process.

    Covers ``load_from``, ``--resume``, 'Pretrained' initialisers and the inferencers. Addresses (http and the model
    zoos) are refused with the advice to download the file. The config text inside a checkpoint is dropped, because
    MMEngine's resume would execute it.
    """
    for prefix in list(CheckpointLoader._schemes):
        CheckpointLoader.register_scheme(prefix, _load_from_disk, force=True)


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a safetensors file.

    Raises:
        ValueError: The file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(f"checkpoint {path} cannot be read, it is damaged or incomplete: {error}") from None


def _load_from_disk(filename: str, map_location: Any) -> dict[str, Any]:
    checkpoint = read_checkpoint(filename)
    if filename.endswith(".safetensors") and read_metadata(filename).get("format") == DELTA_FORMAT:
        raise ValueError(
            f"checkpoint {filename} is a delta: MMEngine would leave the rest of the model at random. Make a full "
            "checkpoint of it first: python tools/convert_checkpoint.py SRC.safetensors DST.pth --config CONFIG"
        )
    meta = checkpoint.get("meta")
    if isinstance(meta, dict):
        checkpoint["meta"] = {key: value for key, value in meta.items() if key not in ("cfg", "config")}
    device = torch.device("cpu" if map_location is None else map_location)
    return checkpoint if device.type == "cpu" else _to_device(checkpoint, device)


def _to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return type(value)((key, _to_device(item, device)) for key, item in value.items())
    if isinstance(value, list):
        return [_to_device(item, device) for item in value]
    return value


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(f"checkpoint {path} cannot be read, it is damaged or incomplete: {error}") from None


def _history_buffer_attribute(owner: Any, name: str) -> Any:
    """The ``getattr`` that a pickled HistoryBuffer may call: its four statistics, nothing else."""
    if owner is HistoryBuffer and name in ("min", "max", "mean", "current"):
        return getattr(owner, name)
    raise pickle.UnpicklingError(f"getattr of {name!r} is not allowed")


@contextlib.contextmanager
def _allowed_globals() -> Iterator[None]:
    reconstruct = np.empty(0).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    allowed = [
        HistoryBuffer,
        (_history_buffer_attribute, "builtins.getattr"),
        np.ndarray,
        np.dtype,
        (reconstruct, "numpy.core.multiarray._reconstruct"),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")),
        codecs.encode,  # how pickle protocol 2 writes the bytes of an array
        collections.OrderedDict,
        argparse.Namespace,  # the options that the training scripts of MAE, DeiT and DINO store; it only holds values
    ]
    with torch.serialization.safe_globals(allowed):
        yield


def _first_reason(error: Exception) -> str:
    """The telling line of torch's long error texts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "GLOBAL" in line or "not allowed" in line or "Unsupported" in line:
            return line[:200]
    return lines[0][:200] if lines else type(error).__name__
