"""Greedy non-maximum suppression as a fixed number of matrix products: no NonMaxSuppression, no dynamic shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_SIZE = 256


class Kept(NamedTuple):
    """Result of :func:`suppress`.

    Args:
        mask: (B, N), 1.0 for a box that is kept and 0.0 for one that is not.
        converged: (B,), 1.0 where another round would have changed nothing: then ``mask`` is greedy NMS exactly.
    """

    mask: Tensor
    converged: Tensor


def suppress(
    boxes: Tensor, labels: Tensor | None, iou_threshold: float, rounds: int, block_size: int = BLOCK_SIZE
) -> Kept:
    """Keeps a box unless a kept box of a higher score and the same label overlaps it by more than ``iou_threshold``.

    Greedy NMS is the one fixed point of ``keep = not any(keep * overlap above the diagonal)``. It is sought block by
    block: what the blocks before keep removes boxes of this one, and the rest starts from all ones and is repeated.
    That takes as many rounds as the longest chain of boxes within the block of which each suppresses the next: a
    handful for real images, but n for a row of n boxes. So the result says whether it converged.

    Args:
        boxes: (B, N, 4), x1 y1 x2 y2, by falling score.
        labels: (B, N), or None where every box competes with every other.
        iou_threshold: As in mmcv's ``nms``: an overlap equal to it does not suppress.
        rounds: Repetitions in each block, at least 1.
        block_size: Boxes of a block; small blocks need fewer rounds and make a larger graph.

    Raises:
        ValueError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds} must be at least 1")
    boxes = boxes.float()  # areas of a few hundred pixels squared are beyond half precision
    length = boxes.shape[1]
    masks: list[Tensor] = []
    changes = []
    for start in range(0, length, block_size):
        end = min(start + block_size, length)
        over = (overlaps(boxes[:, :end], boxes[:, start:end]) > iou_threshold).float()  # (B, end, block)
        if labels is not None:
            over = over * (labels[:, :end, None] == labels[:, None, start:end]).float()
        alive = torch.ones_like(boxes[:, None, start:end, 0])
        if masks:
            earlier = torch.cat(masks, dim=1)[:, None]
            alive = (torch.matmul(earlier, over[:, :start]) < 0.5).float()
        # A constant of the graph: a box is suppressed only by those before it.
        within = over[:, start:] * torch.ones(end - start, end - start, device=boxes.device).triu(1)
        keep = before = alive
        for _ in range(rounds):
            before = keep
            keep = alive * (torch.matmul(keep, within) < 0.5).float()
        changes.append((keep - before).abs().amax(dim=(1, 2)))
        masks.append(keep[:, 0])
    return Kept(torch.cat(masks, dim=1), 1.0 - torch.stack(changes).amax(dim=0))


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (B, N, 4) and (B, M, 4), x1 y1 x2 y2, as (B, N, M); 0 for boxes without area."""
    x1, y1, x2, y2 = (value[:, :, None] for value in first.unbind(-1))
    u1, v1, u2, v2 = (value[:, None, :] for value in second.unbind(-1))
    width = (torch.minimum(x2, u2) - torch.maximum(x1, u1)).clamp(min=0)
    height = (torch.minimum(y2, v2) - torch.maximum(y1, v1)).clamp(min=0)
    both = width * height
    either = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - both
    return both / either.clamp(min=1e-9)
