"""Rotary position embedding for images (RoFormer, arXiv:2104.09864; as in DINOv3, arXiv:2508.10104)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .windows import TokenLayout


@dataclass(frozen=True)
class Rotation:
    """Rotates the halves of every head's channels against each other by an angle per token and channel.

    Args:
        cos: (windows, N, head_dim); windows is 1 where the sequence is the whole image.
        sin: Likewise.
    """

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Maps (B * windows, heads, N, head_dim) to the same shape."""
        windows = x.unflatten(0, (-1, self.cos.shape[0]))
        first, second = windows.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return (windows * self.cos[:, None] + turned * self.sin[:, None]).flatten(0, 1).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Angles of every patch: its centre, scaled to -1 .. 1 along each side, times frequencies.

    Positions are those on the whole grid, in windowed blocks too. Tokens without a place (cls, registers) and the
    padding of windows are not rotated.

    Args:
        head_dim: Width of a head, a multiple of 4.
        base: Ratio of the longest to the shortest period. Defaults to 100 (DINOv3).

    Raises:
        ValueError: ``head_dim`` is no multiple of 4.
    """

    def __init__(self, head_dim: int, base: float = 100.0) -> None:
        super().__init__()
        if head_dim % 4:
            raise ValueError(f"rotary positions need heads whose width is a multiple of 4, not {head_dim}")
        self.base = base
        periods = base ** (torch.arange(head_dim // 4, dtype=torch.float32) * (4 / head_dim))
        self.register_buffer("periods", periods, persistent=False)

    def forward(self, layout: TokenLayout) -> tuple[Rotation, Rotation]:
        """Rotations for the whole image and for its windows (the same twice where no block is windowed)."""
        assert isinstance(self.periods, Tensor)
        height, width = layout.grid
        rows, columns = (
            (torch.arange(side, device=self.periods.device, dtype=torch.float32) + 0.5) / side * 2 - 1
            for side in layout.grid
        )
        places = torch.stack([rows[:, None].expand(height, width), columns.expand(height, width)], dim=-1)
        angles = (2 * math.pi * places[..., None] / self.periods).flatten(2).tile(2).flatten(0, 1)[None]
        angles = F.pad(layout.order(angles), (0, 0, layout.num_prefix, 0))
        whole = Rotation(angles.cos(), angles.sin())
        if not layout.window_size:
            return whole, whole
        windows = layout.split(angles)
        return whole, Rotation(windows.cos(), windows.sin())
