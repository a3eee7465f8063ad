"""Trained detectors and segmenters: full checkpoints, and small deltas on a pre-trained backbone.

A delta is a safetensors file with the weights that training changed, in FP16, and in its metadata which pre-trained
weights it belongs to. MMEngine cannot read it by mistake and leave the backbone at random values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from .loader import read_checkpoint, state_dict_of
from .pretrained import load_pretrained

_FORMAT = "vitdense-delta-1"
_BACKBONE = "backbone."


def load_trained(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Loads a trained detector or segmenter, strictly.

    Args:
        model: Built from the config that the weights were trained with.
        path: A checkpoint of tools/train.py, or a delta.

    Returns:
        Where the weights come from: for a delta, its metadata (base weights and their sha256 among them).

    Raises:
        FileNotFoundError: No such file.
        ImportError: The delta's base weights are not installed.
        ValueError: A damaged or hostile file, or weights that do not fit the model: each is named.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return _load_delta(model, path)
    tensors = {name.removeprefix("module."): value for name, value in state_dict_of(read_checkpoint(path)).items()}
    _check_fit(model, tensors, expected_missing=set(), path=path)
    model.load_state_dict(tensors, strict=True)
    return {}


def save_delta(model: nn.Module, path: str | Path, base: str, config: str) -> dict[str, int]:
    """Writes what training changed against the pre-trained backbone, in FP16.

    Args:
        model: A trained model whose ``backbone`` is a ViT.
        path: The .safetensors file.
        base: The pre-trained weights, as :func:`load_pretrained` takes them.
        config: Name of the training config, kept in the metadata.

    Returns:
        How many tensors were kept and how many are those of the base.

    Raises:
        ValueError: The backbone does not fit the base weights.
    """
    from safetensors.torch import save_file

    trained = {name: value.detach().clone() for name, value in model.state_dict().items()}
    report = load_pretrained(model.backbone, base)
    pretrained = {_BACKBONE + name: value for name, value in model.backbone.state_dict().items()}
    model.load_state_dict(trained)
    same = sorted(name for name, value in pretrained.items() if torch.equal(value, trained[name]))
    changed = {name: _half(value) for name, value in trained.items() if name not in set(same)}
    metadata = {"format": _FORMAT, "base": base, "base_sha256": report.sha256 or "", "config": config}
    temporary = Path(f"{path}.tmp")
    save_file(changed, temporary, metadata={**metadata, "from_base": json.dumps(same)})
    os.replace(temporary, path)
    return {"changed": len(changed), "from_base": len(same)}


def _half(value: Tensor) -> Tensor:
    """FP16 for weights; counters (num_batches_tracked) stay integers."""
    return value.half().contiguous() if value.is_floating_point() else value.contiguous()


def _load_delta(model: nn.Module, path: Path) -> dict[str, str]:
    tensors = read_checkpoint(path)
    metadata = _metadata(path)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} is no delta of vitdense (format {metadata.get('format')!r}, expected {_FORMAT!r})")
    backbone = getattr(model, "backbone", None)
    if not isinstance(backbone, nn.Module):
        raise ValueError(f"{path} is a delta on a pre-trained backbone, but the config's model has no backbone")
    tensors = {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    _check_fit(model, tensors, expected_missing=set(json.loads(metadata["from_base"])), path=path)
    report = load_pretrained(backbone, metadata["base"])
    if report.sha256 != metadata["base_sha256"]:
        raise ValueError(f"{path} belongs to base weights with sha256 {metadata['base_sha256']}, found {report.sha256}")
    model.load_state_dict(
        tensors, strict=False
    )  # why not strict: the rest was just loaded from the base, see _check_fit
    return metadata


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        return dict(file.metadata() or {})


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor], expected_missing: set[str], path: Path) -> None:
    expected = model.state_dict()
    missing = sorted(set(expected) - set(tensors) - expected_missing)
    unused = sorted((set(tensors) | expected_missing) - set(expected))
    shapes = [
        f"{name} is {tuple(tensors[name].shape)} in the file, {tuple(expected[name].shape)} in the model"
        for name in sorted(set(tensors) & set(expected))
        if tensors[name].shape != expected[name].shape
    ]
    if not (missing or unused or shapes):
        return
    hint = ""
    if any("conv_seg" in line or "fc_cls" in line or "gfl_cls" in line for line in shapes):
        hint = " The number of classes differs: set num_classes and the data set's classes to those of the weights."
    parts = [
        f"{title} ({len(names)}): {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
        for title, names in (("missing", missing), ("unused", unused), ("other shape", shapes))
        if names
    ]
    raise ValueError(f"checkpoint {path} does not fit the model of this config.{hint}\n" + "\n".join(parts))
