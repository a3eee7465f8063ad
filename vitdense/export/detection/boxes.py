"""From what heads predict to boxes, as tensor arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def check_coder(coder: Any) -> None:
    """Raises ValueError unless boxes are coded as :func:`delta_to_box` decodes them."""
    if type(coder).__name__ != "DeltaXYWHBBoxCoder" or coder.add_ctr_clamp or not coder.clip_border:
        raise ValueError(
            f"{type(coder).__name__} with add_ctr_clamp or without clip_border cannot be exported; use "
            "DeltaXYWHBBoxCoder with its defaults"
        )


def clip_boxes(boxes: Tensor, size: Tensor) -> Tensor:
    """Boxes (B, N, 4), x1 y1 x2 y2, cut to images of ``size`` (B, 2), heights and widths."""
    limits = size.to(boxes.dtype)[:, [1, 0, 1, 0]][:, None]  # (B, 1, 4)
    return torch.minimum(boxes.clamp(min=0), limits)


def image_size(tensor: Tensor, pad_value: float) -> Tensor:
    """Height and width (B, 2) of the images in padded tensors (B, 3, H, W).

    An image starts at the upper left; behind it every channel has ``pad_value``. A normalised pixel has it in no
    channel as a rule (means are no whole numbers), so that the last row and column that differ are the image's.
    """
    filled = (tensor != pad_value).any(dim=1).to(tensor.dtype)  # (B, H, W)
    sizes = []
    for other in (2, 1):
        used = filled.amax(dim=other)
        places = torch.arange(1, used.shape[1] + 1, dtype=tensor.dtype, device=tensor.device)
        sizes.append((used * places).amax(dim=1))
    return torch.stack(sizes, dim=1)


def distance_to_box(centers: Tensor, distances: Tensor) -> Tensor:
    """Boxes (..., 4) from points (..., 2) and their distances (..., 4) to left, top, right and bottom."""
    return torch.cat([centers - distances[..., :2], centers + distances[..., 2:]], dim=-1)


def delta_to_box(boxes: Tensor, deltas: Tensor, means: Sequence[float], stds: Sequence[float]) -> Tensor:
    """Boxes (..., 4) moved and scaled by deltas (..., 4) (arXiv:1311.2524); they grow at most 1000 / 16 times."""
    deltas = deltas * deltas.new_tensor(list(stds)) + deltas.new_tensor(list(means))
    limit = abs(math.log(16 / 1000))
    size = boxes[..., 2:] - boxes[..., :2]
    center = (boxes[..., :2] + boxes[..., 2:]) / 2 + size * deltas[..., :2]
    half = size * deltas[..., 2:].clamp(-limit, limit).exp() / 2
    return torch.cat([center - half, center + half], dim=-1)
