"""RoIAlign over all levels of a pyramid at once, as one gather: no RoiAlign node, no choice of a level by NonZero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pyramid_roi_align(
    features: Sequence[Tensor],
    boxes: Tensor,
    strides: Sequence[float],
    *,
    output_size: int,
    sampling_ratio: int,
    finest_scale: int,
) -> Tensor:
    """What MMDetection's ``SingleRoIExtractor`` with an aligned ``RoIAlign`` gives, for a fixed number of boxes.

    The levels are flattened behind each other; which one a box reads is index arithmetic. Sampling points outside of
    the map are handled as mmcv 2.3 does: zero beyond one cell, else clamped to the border.

    Args:
        features: Levels (B, C, H, W), from the finest on.
        boxes: (B, N, 4), x1 y1 x2 y2 in pixels of the input.
        strides: Pixels per cell of each level.
        output_size: Bins along each side.
        sampling_ratio: Sampling points along each side of a bin; at least 1 (0, MMDetection's default, adapts to the
            box and has no static form).
        finest_scale: Side in pixels of a box up to which the finest level is read, as in ``SingleRoIExtractor``.

    Returns:
        (B * N, C, output_size, output_size).

    Raises:
        ValueError: ``sampling_ratio`` is below 1.
    """
    if sampling_ratio < 1:
        raise ValueError(
            "sampling_ratio=0 adapts to each box and has no static form; train and evaluate with sampling_ratio=2"
        )
    boxes = boxes.float()  # positions in half precision are off by pixels beyond 2048
    batch, channels = features[0].shape[:2]
    number = boxes.shape[1]
    sizes = [tuple(int(side) for side in feature.shape[-2:]) for feature in features]
    starts = [sum(height * width for height, width in sizes[:i]) for i in range(len(sizes))]
    level = _levels(boxes, finest_scale, len(features))

    def of_level(values: Sequence[float], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=boxes.device)[level]  # (B, N)

    scale = of_level([1 / stride for stride in strides])
    height, width = (of_level([size[axis] for size in sizes]) for axis in (0, 1))
    row = of_level([width for _, width in sizes], torch.int64)[..., None, None]
    start = of_level(starts, torch.int64)[..., None, None]
    points = output_size * sampling_ratio
    offsets = (torch.arange(points, dtype=boxes.dtype, device=boxes.device) + 0.5) / points
    x1, y1, x2, y2 = (boxes[..., i] * scale - 0.5 for i in range(4))
    ys = y1[..., None] + (y2 - y1)[..., None] * offsets  # (B, N, points)
    xs = x1[..., None] + (x2 - x1)[..., None] * offsets
    y_low, y_high, y_weight, y_inside = _corners(ys, height[..., None])
    x_low, x_high, x_weight, x_inside = _corners(xs, width[..., None])
    flat = torch.cat([feature.flatten(2) for feature in features], dim=2).transpose(1, 2)  # (B, cells, C)
    images = torch.arange(batch, device=boxes.device)[:, None, None, None] * flat.shape[1]
    flat = flat.reshape(-1, channels)
    inside = (y_inside[..., :, None] * x_inside[..., None, :])[..., None]

    def sample(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        index = images + start + y.to(torch.int64)[..., :, None] * row + x.to(torch.int64)[..., None, :]
        values = torch.index_select(flat, 0, index.reshape(-1))
        return values.reshape(batch, number, points, points, channels) * weight.to(flat.dtype)[..., None]

    total = (
        sample(y_low, x_low, (1 - y_weight)[..., :, None] * (1 - x_weight)[..., None, :])
        + sample(y_low, x_high, (1 - y_weight)[..., :, None] * x_weight[..., None, :])
        + sample(y_high, x_low, y_weight[..., :, None] * (1 - x_weight)[..., None, :])
        + sample(y_high, x_high, y_weight[..., :, None] * x_weight[..., None, :])
    ) * inside.to(flat.dtype)
    bins = total.reshape(batch * number, output_size, sampling_ratio, output_size, sampling_ratio, channels)
    return bins.mean(dim=(2, 4)).permute(0, 3, 1, 2)


def _levels(boxes: Tensor, finest_scale: int, count: int) -> Tensor:
    """Level of each box: the finest up to ``2 * finest_scale``, then one more for each doubling (arXiv:1612.03144)."""
    side = torch.sqrt(((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])).clamp(min=0))
    level = torch.zeros_like(side)
    for step in range(1, count):  # thresholds instead of a logarithm: the same in every runtime
        level = level + (side + finest_scale * 1e-6 >= finest_scale * 2**step).to(side.dtype)
    return level.to(torch.int64)


def _corners(position: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lower and upper cell, weight of the upper, and 1.0 where the point is not beyond one cell outside."""
    inside = ((position >= -1) & (position <= size)).to(position.dtype)
    clamped = torch.minimum(position.clamp(min=0), size - 1)
    low = clamped.floor()
    return low, torch.minimum(low + 1, size - 1), clamped - low, inside
