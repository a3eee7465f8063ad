"""Absolute position embeddings for any grid: a learned table, sines and cosines, separate rows and columns.

All give ``patches(grid)``, the positions (1, H*W, C) in raster order, and ``cls()``, that of the cls token.
"""

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


class SinCosEmbedding(nn.Module):
    """Fixed sines and cosines of the column and the row (MAE, arXiv:2111.06377, ``get_2d_sincos_pos_embed``).

    Half of the channels hold the column, half the row. On another grid the places are scaled to those of the stored one
    and the functions evaluated there, so nothing is interpolated. The cls token has the position zero.

    Args:
        grid: Patches along H and W for which positions are whole numbers.
        embed_dims: Width of a token, a multiple of 4.

    Raises:
        ValueError: ``embed_dims`` is no multiple of 4.
    """

    with_cls_token = False  # no entry of its own in a table

    def __init__(self, grid: tuple[int, int], embed_dims: int) -> None:
        super().__init__()
        if embed_dims % 4:
            raise ValueError(f"pos_embed='sincos' needs embed_dims to be a multiple of 4, not {embed_dims}")
        self.grid = grid
        frequencies = 10000.0 ** (-torch.arange(embed_dims // 4, dtype=torch.float64) / (embed_dims // 4))
        self.register_buffer("frequencies", frequencies.float(), persistent=False)

    def cls(self) -> Tensor:
        """Position of the cls token: zeros, (1, 1, C)."""
        assert isinstance(self.frequencies, Tensor)
        return self.frequencies.new_zeros(1, 1, 4 * len(self.frequencies))

    def patches(self, grid: tuple[int, int]) -> Tensor:
        """Positions of the patches for ``grid`` (H, W), in raster order: (1, H*W, C)."""
        assert isinstance(self.frequencies, Tensor)
        halves = []
        for new, old in zip(grid, self.grid, strict=True):
            places = (torch.arange(new, device=self.frequencies.device, dtype=torch.float32) + 0.5) * (old / new) - 0.5
            angles = places[:, None] * self.frequencies
            halves.append(torch.cat([angles.sin(), angles.cos()], dim=1))
        rows, columns = halves
        table = torch.cat([columns[None].expand(grid[0], -1, -1), rows[:, None].expand(-1, grid[1], -1)], dim=2)
        return table.flatten(0, 1)[None]


class SeparateEmbedding(nn.Module):
    """A learned vector for each row and one for each column, added; interpolated linearly to other grids.

    The cls token has the position zero.

    Args:
        grid: Patches along H and W of the stored vectors.
        embed_dims: Width of a token.
    """

    with_cls_token = False

    def __init__(self, grid: tuple[int, int], embed_dims: int) -> None:
        super().__init__()
        self.grid = grid
        self.rows = nn.Parameter(torch.zeros(grid[0], embed_dims))
        self.columns = nn.Parameter(torch.zeros(grid[1], embed_dims))
        for table in (self.rows, self.columns):
            nn.init.trunc_normal_(table, std=0.02)

    def cls(self) -> Tensor:
        """Position of the cls token: zeros, (1, 1, C)."""
        return self.rows.new_zeros(1, 1, self.rows.shape[1])

    def patches(self, grid: tuple[int, int]) -> Tensor:
        """Positions of the patches for ``grid`` (H, W), in raster order: (1, H*W, C)."""
        rows, columns = (
            table
            if len(table) == side
            else F.interpolate(table.T[None], size=side, mode="linear", align_corners=False)[0].T
            for table, side in zip((self.rows, self.columns), grid, strict=True)
        )
        return (rows[:, None] + columns[None]).flatten(0, 1)[None]
