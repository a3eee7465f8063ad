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


def clip_boxes(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (..., 4), x1 y1 x2 y2, cut to an image of ``size`` (H, W)."""
    height, width = size
    x1, y1, x2, y2 = boxes.unbind(-1)
    return torch.stack([x1.clamp(0, width), y1.clamp(0, height), x2.clamp(0, width), y2.clamp(0, height)], dim=-1)


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
