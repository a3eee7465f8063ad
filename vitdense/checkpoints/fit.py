"""Adapting converted weights to the ViT that takes them: patch size, grids, windows, tokens."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models import PositionEmbedding, ViT
from ..models.relative import RelativePositionBias
from .report import ImportReport
from .resample import resample_patch_kernel, resize_bias_table
from .sources import ConvertedWeights
from .sources.base import square_grid

# What is added to a pre-trained ViT for fine-tuning, starting so that nothing changes at first: tables and last norm at
# zero, LayerScale at one, LoRA's products at zero.
_ADDED = (
    r"blocks\.\d+\.attn\.rel_pos\..*",
    r"blocks\.\d+\.residual\..*",
    r"blocks\.\d+\.ls[12]\.gamma",
    r"blocks\.\d+\..*\.lora_[ab]",
)


def fit(model: ViT, converted: ConvertedWeights, report: ImportReport) -> dict[str, Tensor]:
    """Adapts what differs between a source and a model by size, and notes it in ``report``.

    The patch kernel is resampled, position and relative-position tables are resized, weights that the source documents
    as optional are dropped if the model has no place for them, and what is added for fine-tuning keeps its initial
    values.

    Args:
        model: The ViT that shall take the weights. It is not changed.
        converted: Weights under our names.
        report: Gets ``resampled``, ``interpolated``, ``initialised`` and further ``ignored`` entries.

    Returns:
        Tensors by our name, which may still not fit.
    """
    tensors = dict(converted.tensors)
    expected = model.state_dict()
    kernel = tensors.get("patch_embed.proj.weight")
    if kernel is not None and kernel.ndim == 4 and kernel.shape[-1] != model.patch_size:
        report.resampled["patch_embed.proj.weight"] = f"{kernel.shape[-1]} -> {model.patch_size}"
        tensors["patch_embed.proj.weight"] = resample_patch_kernel(kernel, model.patch_size)
    has_cls = "cls_token" in tensors
    for name in sorted(converted.optional & set(tensors) - set(expected)):
        report.ignored.append(name)
        del tensors[name]
    if "pos_embed.weight" in tensors and isinstance(model.pos_embed, PositionEmbedding):
        tensors["pos_embed.weight"] = _fit_positions(
            tensors["pos_embed.weight"], has_cls, model.pos_embed, converted, report
        )
    for name in [name for name in tensors if ".attn.rel_pos." in name and name in expected]:
        if tensors[name].shape != expected[name].shape:
            tensors[name] = _fit_relative(name, tensors[name], model, report)
    for pattern in _ADDED:
        absent = [name for name in expected if re.fullmatch(pattern, name) and name not in tensors]
        if pattern.endswith("gamma") and any(bool((expected[name] != 1).any()) for name in absent):
            continue  # LayerScale that starts elsewhere would change the features
        if absent and not any(re.fullmatch(pattern, name) for name in tensors):
            tensors.update({name: expected[name] for name in absent})
            report.initialised += absent
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


def _fit_relative(name: str, table: Tensor, model: ViT, report: ImportReport) -> Tensor:
    """Resizes ViTDet's tables linearly, as detectron2 does at run time, and BEiT's as BEiT does at import."""
    block = model.blocks[int(name.split(".")[1])]
    if not isinstance(block.attn.rel_pos, RelativePositionBias):
        length = model.get_parameter(name).shape[0]
        report.interpolated[name] = f"{table.shape[0]} -> {length}"
        return F.interpolate(table.T[None], size=length, mode="linear", align_corners=False)[0].T
    count = table.shape[0]
    has_cls = round(count**0.5) ** 2 != count  # then the last three are for the cls token
    entries = table[:-3] if has_cls else table
    grid = tuple((side + 1) // 2 for side in square_grid(entries.shape[0], name))
    size = block.attn.rel_pos.size
    offsets = entries.T.unflatten(1, tuple(2 * side - 1 for side in grid))
    resized = resize_bias_table(offsets, size).flatten(1).T
    report.interpolated[name] = f"{grid} -> {size}"
    if not block.attn.rel_pos.with_cls_token:
        return resized
    return torch.cat([resized, table[-3:]]) if has_cls else resized  # the strict load names a missing cls token
