"""Trained detectors and segmenters: full checkpoints, small deltas on a pre-trained backbone, whole models in FP16.

A delta is a safetensors file with the weights that training changed, and in its metadata which pre-trained weights it
belongs to. Under :func:`use_safe_loader` MMEngine refuses it, so it never loads by mistake without its base.

New weights are in FP16. A matrix of the base is stored as what was added to it, in 8 bits and a step per row: at half
the size that is nearly as fine, since fine-tuning adds little. On four fine-tuned blocks of a DINOv2-S, whose weights
are 0.013 on average, it is off by 6e-6 on average, FP16 by 3e-6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deploy.files import atomic_write

from .detectors import convert_detectron2_detector, is_detectron2_detector
from .loader import DELTA_FORMAT, expanded, read_checkpoint, read_metadata, state_dict_of
from .pretrained import load_pretrained

_BACKBONE = "backbone."
_STEP = "::step"  # behind the name of a matrix: what one of its 8-bit steps adds, by row


@dataclass(frozen=True)
class Trained:
    """Where trained weights come from.

    Args:
        classes: Class names of the data they were trained on; None where the file does not say.
        base: Pre-trained weights that a delta builds on; None for a full checkpoint.
        base_sha256: Their hash.
        ignored: Names in the file that are documented as unused.
    """

    classes: tuple[str, ...] | None
    base: str | None = None
    base_sha256: str | None = None
    ignored: tuple[str, ...] = ()


def load_trained(model: nn.Module, path: str | Path, *, trust_pickle: bool = False) -> Trained:
    """Loads a trained detector or segmenter, strictly.

    Args:
        model: Built from the config that the weights were trained with.
        path: A checkpoint of tools/train.py, a delta, a whole model in FP16, or a ViTDet detector of detectron2.
        trust_pickle: See :func:`read_checkpoint`. Defaults to False.

    Raises:
        FileNotFoundError: No such file.
        ImportError: The delta's base weights are not installed.
        ValueError: A damaged or hostile file, or weights that do not fit the model: each is named.
    """
    checkpoint = read_checkpoint(path, trust_pickle=trust_pickle)
    path = expanded(path)
    if path.suffix == ".safetensors":
        metadata = read_metadata(path)
        if metadata.get("format") == DELTA_FORMAT:
            return _load_delta(model, checkpoint, metadata, path)
        checkpoint = {"state_dict": checkpoint, "meta": {"dataset_meta": {"classes": _classes(metadata)}}}
    stored = state_dict_of(checkpoint)
    tensors = {name.removeprefix("module."): value for name, value in stored.items()}
    if len(tensors) < len(stored):
        raise ValueError(f"{path} holds weights twice, with and without 'module.' before their names")
    ignored: list[str] = []
    if is_detectron2_detector(tensors):
        tensors, ignored = convert_detectron2_detector(tensors)
    _check_fit(model, tensors, path)
    model.load_state_dict(tensors, strict=True)
    meta = checkpoint.get("meta")
    dataset_meta = meta.get("dataset_meta") if isinstance(meta, dict) else None
    classes = dataset_meta.get("classes") if isinstance(dataset_meta, dict) else None
    known = tuple(map(str, classes)) if isinstance(classes, list | tuple) else None
    return Trained(known, ignored=tuple(ignored))


def save_delta(model: nn.Module, path: str | Path, base: str, classes: Sequence[str]) -> dict[str, int]:
    """Writes what training changed against the pre-trained backbone.

    New weights are in FP16, statistics of norms in FP32, what was added to a matrix of the base in 8 bits per row.

    Args:
        model: A trained model whose ``backbone`` is a ViT. It is not changed.
        path: The .safetensors file.
        base: The pre-trained weights, as :func:`load_pretrained` takes them.
        classes: Class names of the training data.

    Returns:
        How many tensors were kept and how many are those of the base.

    Raises:
        ValueError: The backbone does not fit the base weights, or a weight is too large for FP16.
    """
    trained = {name: value.detach().clone() for name, value in model.state_dict().items()}
    try:
        report = load_pretrained(model.get_submodule("backbone"), base)  # type: ignore[arg-type]
        added = {_BACKBONE + name for name in report.initialised}  # not in the base: they kept their trained values
        base_values = {
            name: value.clone()
            for name, value in model.state_dict().items()
            if name.startswith(_BACKBONE) and name not in added
        }
    finally:
        model.load_state_dict(trained)
    same = sorted(name for name, value in base_values.items() if torch.equal(value, trained[name]))
    changes: dict[str, Tensor] = {}
    for name, value in base_values.items():
        if name not in same and value.ndim >= 2 and value.is_floating_point():
            changes |= _in_steps(name, trained[name] - value)
    metadata = {
        "format": DELTA_FORMAT,
        "base": base,
        "base_sha256": report.sha256 or "",
        "classes": json.dumps(list(classes)),
        "from_base": json.dumps(same),
    }
    changed = _save_half(model, path, {*same, *changes}, metadata, changes)
    return {"changed": changed, "from_base": len(same)}


def save_whole(model: nn.Module, path: str | Path, classes: Sequence[str]) -> int:
    """Writes every weight of a model that was trained from scratch, in FP16, statistics of norms in FP32.

    Args:
        model: The trained model.
        path: The .safetensors file.
        classes: Class names of the training data.

    Returns:
        The number of tensors.

    Raises:
        ValueError: A weight is too large for FP16.
    """
    return _save_half(model, path, set(), {"classes": json.dumps(list(classes))})


def _in_steps(name: str, change: Tensor) -> dict[str, Tensor]:
    """A change as 8-bit numbers and the size of their step, by row."""
    rows = change.flatten(1)
    mantissa, exponent = torch.frexp(rows.abs().amax(dim=1) / 127)
    # To 12 bits: a model that was read from a delta is written as the same delta again, whatever float32 rounded.
    step = torch.ldexp((mantissa * 4096).round() / 4096, exponent)
    levels = (rows / step.clamp(min=1e-30)[:, None]).round().to(torch.int8)
    return {name: levels.view_as(change), name + _STEP: step}


def _save_half(
    model: nn.Module,
    path: str | Path,
    left_out: set[str],
    metadata: dict[str, str],
    changes: Mapping[str, Tensor] | None = None,
) -> int:
    from safetensors.torch import save

    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    stored = {
        name: _stored(name, value.detach(), name in parameters)
        for name, value in model.state_dict().items()
        if name not in left_out
    }
    with atomic_write(path) as temporary:
        # save_file makes it unreadable to others
        temporary.write_bytes(save({**stored, **(changes or {})}, metadata=metadata))
    return len(stored) + sum(not name.endswith(_STEP) for name in changes or ())


def _stored(name: str, value: Tensor, is_parameter: bool) -> Tensor:
    if not is_parameter or not value.is_floating_point():
        return value.clone().contiguous()  # safetensors takes no memory twice, and heads share layers among levels
    half = value.half().contiguous()
    if not torch.isfinite(half).all():
        raise ValueError(
            f"{name} holds values that FP16 cannot: largest magnitude {value.abs().max():.3g}, limit 65504"
        )
    return half


def _load_delta(model: nn.Module, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> Trained:
    base, base_sha256, classes, from_base = _parse(metadata, path)
    backbone = getattr(model, "backbone", None)
    if not isinstance(backbone, nn.Module):
        raise ValueError(f"{path} is a delta on a pre-trained backbone, but the config's model has no backbone")
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    own = model.state_dict()
    steps = {name.removesuffix(_STEP): value for name, value in tensors.items() if name.endswith(_STEP)}
    changes = {name: value for name, value in tensors.items() if value.dtype == torch.int8}
    if any(value.ndim != 1 or len(value) != len(changes.get(name, ())) for name, value in steps.items()) or (
        steps.keys() != changes.keys() or not all(name.startswith(_BACKBONE) for name in changes)
    ):
        raise ValueError(f"{path}: changes in 8 bits and their steps do not belong together; convert it again")
    complete = {
        name: value.to(own[name].dtype) if name in own else value
        for name, value in tensors.items()
        if not name.endswith(_STEP)
    }
    # Only weights of the backbone may come from the base: a head that is missing has to be noticed.
    complete |= {name: own[name] for name in from_base if name.startswith(_BACKBONE) and name in own}
    _check_fit(model, complete, path)
    report = load_pretrained(backbone, base)  # type: ignore[arg-type]
    if report.sha256 != base_sha256:
        backbone.load_state_dict(before)
        raise ValueError(f"{path} belongs to base weights with sha256 {base_sha256}, found {report.sha256} ({base})")
    for name, value in model.state_dict().items():
        if name in from_base:
            complete[name] = value
        elif name in changes:
            complete[name] = value + changes[name] * steps[name].view(-1, *[1] * (value.ndim - 1))
    model.load_state_dict(complete, strict=True)
    return Trained(classes, base, base_sha256)


def _classes(metadata: Mapping[str, str]) -> Any:
    try:
        return json.loads(metadata.get("classes", "null"))
    except json.JSONDecodeError:
        return None  # another project's entry of that name


def _parse(metadata: Mapping[str, str], path: Path) -> tuple[str, str, tuple[str, ...], set[str]]:
    """Base, its hash, class names and the tensors that come from the base."""
    try:
        lists: list[Any] = [json.loads(metadata[key]) for key in ("classes", "from_base")]
        if not all(isinstance(item, list) and all(isinstance(name, str) for name in item) for item in lists):
            raise TypeError("classes and from_base must be lists of names")
        return metadata["base"], metadata["base_sha256"], tuple(lists[0]), set(lists[1])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: the metadata of the delta are damaged ({error!r}); convert it again") from None


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    expected = model.state_dict()
    missing, unused = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    shapes = [
        f"{name} is {tuple(tensors[name].shape)} in the file, {tuple(expected[name].shape)} in the model"
        for name in sorted(set(tensors) & set(expected))
        if tensors[name].shape != expected[name].shape
    ]
    kinds = [
        f"{name} is {tensors[name].dtype} in the file, {expected[name].dtype} in the model"
        for name in sorted(set(tensors) & set(expected))
        if tensors[name].is_floating_point() != expected[name].is_floating_point()
    ]
    if not (missing or unused or shapes or kinds):
        return
    hint = ""
    if any("conv_seg" in line or "fc_cls" in line or "gfl_cls" in line for line in shapes):
        hint = " The number of classes differs: set num_classes and the data set's classes to those of the weights."
    if any(name.endswith(".lora_a") for name in missing + unused):
        hint = " One of the two has LoRA, the other not: give the config that the training wrote to its work dir."
    parts = [
        f"{title} ({len(names)}): {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
        for title, names in (("missing", missing), ("unused", unused), ("other shape", shapes), ("other type", kinds))
        if names
    ]
    raise ValueError(f"checkpoint {path} does not fit the model of this config.{hint}\n" + "\n".join(parts))
