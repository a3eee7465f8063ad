"""Absolute position embedding, interpolated to any grid."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PositionEmbedding(nn.Module):
    """Learned absolute position table, resized bicubically (align_corners=False) when the grid differs.

    Sources resize their tables by different conventions, and a table belongs to its convention: the original DINOv2
    adds 0.1 to the target size before it computes the scale and, with registers, filters (antialias). Both are options
    here, recorded in the config, because the wrong one shifts every feature.

    Args:
        grid: Patches along H and W of the stored table.
        embed_dims: Width of a token.
        with_cls_token: Whether the table starts with an entry for the cls token.
        interpolate_offset: Added to the target grid when the scale is computed (DINOv2: 0.1). Defaults to 0.0.
        interpolate_antialias: Whether downsizing filters. Defaults to False.
    """

    def __init__(
        self,
        grid: tuple[int, int],
        embed_dims: int,
        *,
        with_cls_token: bool,
        interpolate_offset: float = 0.0,
        interpolate_antialias: bool = False,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.with_cls_token = with_cls_token
        self.interpolate_offset = interpolate_offset
        self.interpolate_antialias = interpolate_antialias
        self.weight = nn.Parameter(torch.zeros(1, int(with_cls_token) + grid[0] * grid[1], embed_dims))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def cls(self) -> Tensor:
        """Position of the cls token, (1, 1, C)."""
        return self.weight[:, :1]

    def patches(self, grid: tuple[int, int]) -> Tensor:
        """Positions of the patches for ``grid`` (H, W), in raster order: (1, H*W, C)."""
        table = self.weight[:, int(self.with_cls_token) :]
        if grid == self.grid:
            return table
        table = table.unflatten(1, self.grid).permute(0, 3, 1, 2)
        # With an offset torch must be told the scale, or it derives it from the sizes and the offset is lost.
        if self.interpolate_offset:
            scale = [(new + self.interpolate_offset) / old for new, old in zip(grid, self.grid, strict=True)]
            target: dict[str, object] = {"scale_factor": scale}
        else:
            target = {"size": grid}
        table = F.interpolate(
            table,
            mode="bicubic",
            align_corners=False,
            antialias=self.interpolate_antialias,
            **target,  # type: ignore[arg-type]
        )
        if tuple(table.shape[-2:]) != grid:  # scale factors round down: 0.1 is small enough for any real grid
            raise ValueError(
                f"interpolate_offset={self.interpolate_offset} gives {tuple(table.shape[-2:])}, not {grid}"
            )
        return table.permute(0, 2, 3, 1).flatten(1, 2)
