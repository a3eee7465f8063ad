"""Greedy non-maximum suppression as a fixed number of matrix products: no NonMaxSuppression, no dynamic shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Kept(NamedTuple):
    """Result of :func:`suppress`.

    Args:
        mask: (B, N), 1.0 for a box that is kept and 0.0 for one that is not.
        converged: (B,), 1.0 where another round would have changed nothing: then ``mask`` is greedy NMS exactly.
    """

    mask: Tensor
    converged: Tensor


def suppress(boxes: Tensor, labels: Tensor | None, iou_threshold: float, rounds: int) -> Kept:
    """Keeps a box unless a kept box of a higher score and the same label overlaps it by more than ``iou_threshold``.

    Greedy NMS is the one fixed point of ``keep = not any(keep * overlap above the diagonal)``. Starting from all ones
    it is reached after as many rounds as the longest chain of boxes of which each suppresses the next: a handful for
    real images, but n for a row of n boxes. So the result says whether it converged.

    Args:
        boxes: (B, N, 4), x1 y1 x2 y2, by falling score.
        labels: (B, N), or None where every box competes with every other.
        iou_threshold: As in mmcv's ``nms``: an overlap equal to it does not suppress.
        rounds: Repetitions in the graph, at least 1.

    Raises:
        ValueError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds} must be at least 1")
    boxes = boxes.float()  # areas of a few hundred pixels squared are beyond half precision
    length = boxes.shape[1]
    over = (overlaps(boxes, boxes) > iou_threshold).to(boxes.dtype)
    if labels is not None:
        over = over * (labels[:, :, None] == labels[:, None, :]).to(boxes.dtype)
    over = over * torch.ones(length, length, dtype=boxes.dtype, device=boxes.device).triu(1)  # a constant of the graph
    keep = torch.ones_like(boxes[:, None, :, 0])
    before = keep
    for _ in range(rounds):
        before = keep
        keep = (torch.matmul(keep, over) < 0.5).to(boxes.dtype)
    changed = (keep - before).abs().amax(dim=(1, 2))
    return Kept(keep[:, 0], 1.0 - changed)


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (B, N, 4) and (B, M, 4), x1 y1 x2 y2, as (B, N, M); 0 for boxes without area."""
    x1, y1, x2, y2 = (value[:, :, None] for value in first.unbind(-1))
    u1, v1, u2, v2 = (value[:, None, :] for value in second.unbind(-1))
    width = (torch.minimum(x2, u2) - torch.maximum(x1, u1)).clamp(min=0)
    height = (torch.minimum(y2, v2) - torch.maximum(y1, v1)).clamp(min=0)
    both = width * height
    either = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - both
    return both / either.clamp(min=1e-9)
