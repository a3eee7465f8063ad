"""Relative positions inside attention: ViTDet's decomposed tables and BEiT's bias tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .windows import TokenLayout

# Fused kernels on GPUs read rows of 16 bytes: eight half-precision channels.
_ALIGNMENT = 8


class DecomposedRelativePosition(nn.Module):
    """Relative position as the sum of a row and a column term (MViTv2, arXiv:2112.01526; ViTDet, arXiv:2203.16527).

    The score of query q at (y, x) and key k at (v, u) is ``scale * q.k + q.Rh[y - v] + q.Rw[x - u]``, with the unscaled
    q in the last two. It is computed as one plain scaled-dot-product attention, with the two terms as extra channels of
    query and key::

        [scale * q, q.Rh, q.Rw] . [k, onehot(v), onehot(u)]

    so that fused kernels, which take no such bias, serve it without the N x N scores ever being stored. They want the
    value as wide as query and key, so it is padded with zeros. On a GPU flash attention takes widths up to 256 (heads
    of 64: grids up to 96 x 96); above that torch falls back to its memory-efficient kernel, which has no such limit.

    Tables are interpolated linearly for other grids (detectron2 at 02b5c4e, ``get_rel_pos``). Tokens without a place on
    the grid (cls, registers) have neither term, as queries and as keys.

    Args:
        size: Rows and columns of the grid that the tables are stored for.
        head_dim: Width of a head.
    """

    def __init__(self, size: tuple[int, int], head_dim: int) -> None:
        super().__init__()
        self.size = size
        self.height = nn.Parameter(torch.zeros(2 * size[0] - 1, head_dim))
        self.width = nn.Parameter(torch.zeros(2 * size[1] - 1, head_dim))

    def tables(self, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Vectors for every pair of rows and of columns: (H, H, head_dim) and (W, W, head_dim), query first."""
        return _pairs(self.height, grid[0]), _pairs(self.width, grid[1])

    def widen(self, query: Tensor, key: Tensor, value: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor, Tensor]:
        """Adds the extra channels.

        Args:
            query: (B, heads, P + H*W, head_dim), unscaled, in the order of ``layout``.
            key: Likewise.
            value: Likewise.
            layout: The sequence that attention sees.

        Returns:
            Query, key and value of one common width, for attention with a scale of 1.
        """
        head_dim = query.shape[-1]
        extra = sum(layout.grid)
        fill = -(head_dim + extra) % _ALIGNMENT
        query = torch.cat([query * head_dim**-0.5, F.pad(self._terms(query, layout), (0, fill))], dim=-1)
        places = F.pad(one_hot_places(layout, key), (0, fill)).expand(*key.shape[:-1], -1)
        return query, torch.cat([key, places], dim=-1), F.pad(value, (0, extra + fill))

    def _terms(self, query: Tensor, layout: TokenLayout) -> Tensor:
        """q.Rh for every key row and q.Rw for every key column, (B, heads, P + H*W, H + W)."""
        rows, columns = self.tables(layout.grid)
        patches = layout.raster(query[..., layout.num_prefix :, :].flatten(0, 1)).unflatten(1, layout.grid)
        terms = torch.cat(
            [torch.einsum("bhwc,hkc->bhwk", patches, rows), torch.einsum("bhwc,wkc->bhwk", patches, columns)], dim=-1
        )
        ordered = layout.order(terms.flatten(1, 2)).unflatten(0, query.shape[:2])
        return F.pad(ordered, (0, 0, layout.num_prefix, 0))


def _pairs(table: Tensor, side: int) -> Tensor:
    """(2 * size - 1, C) to (side, side, C): entry [q, k] is the vector for the offset q - k."""
    length = 2 * side - 1
    if table.shape[0] != length:
        table = F.interpolate(table.T[None], size=length, mode="linear", align_corners=False)[0].T
    places = torch.arange(side, device=table.device)
    return table[places[:, None] - places[None, :] + side - 1]


def one_hot_places(layout: TokenLayout, like: Tensor) -> Tensor:
    """One-hot row and column of every token, zeros for prefix tokens: (P + H*W, H + W)."""
    height, width = layout.grid
    rows = torch.eye(height, dtype=like.dtype, device=like.device)[:, None].expand(height, width, height)
    columns = torch.eye(width, dtype=like.dtype, device=like.device)[None].expand(height, width, width)
    raster = torch.cat([rows, columns], dim=-1).flatten(0, 1)[None]
    return F.pad(layout.order(raster)[0], (0, 0, layout.num_prefix, 0))


class RelativePositionBias(nn.Module):
    """A learned score per head and offset (Swin's table, as BEiT uses it, arXiv:2106.08254).

    The table has an entry for every offset of a grid and, where there is a cls token, three more: cls to patch, patch
    to cls and cls to cls. Register tokens share those of the cls token. The bias enters attention as a mask of
    (heads, N, N), which fused kernels take (torch's CPU kernel only while the table needs no gradient).

    For other grids the table is interpolated bicubically.

    Args:
        size: Rows and columns of the grid that the table is stored for.
        num_heads: Attention heads.
        with_cls_token: Whether the table ends with the three entries for it.
    """

    def __init__(self, size: tuple[int, int], num_heads: int, *, with_cls_token: bool) -> None:
        super().__init__()
        self.size = size
        self.with_cls_token = with_cls_token
        offsets = (2 * size[0] - 1) * (2 * size[1] - 1)
        self.table = nn.Parameter(torch.zeros(offsets + 3 * int(with_cls_token), num_heads))

    def forward(self, layout: TokenLayout) -> Tensor:
        """The bias of every pair of tokens in the order of ``layout``: (heads, N, N), query first."""
        patches, prefix = self.offsets(layout.grid), layout.num_prefix
        height, width = layout.grid
        rows, columns = (torch.arange(side, device=patches.device) for side in layout.grid)
        vertical = rows[:, None] - rows[None, :] + height - 1
        horizontal = columns[:, None] - columns[None, :] + width - 1
        # heads, query row, query column, key row, key column
        bias = patches[:, vertical[:, None, :, None], horizontal[None, :, None, :]]
        bias = bias.flatten(3, 4).flatten(1, 2)
        bias = layout.order(layout.order(bias).transpose(1, 2)).transpose(1, 2)
        if not prefix:
            return bias
        count = height * width
        cls = self.table[-3:].T if self.with_cls_token else bias.new_zeros(bias.shape[0], 3)
        to_patch, to_cls, both = (cls[:, i, None, None] for i in range(3))
        top = torch.cat([both.expand(-1, prefix, prefix), to_patch.expand(-1, prefix, count)], dim=2)
        return torch.cat([top, torch.cat([to_cls.expand(-1, count, prefix), bias], dim=2)], dim=1)

    def offsets(self, grid: tuple[int, int]) -> Tensor:
        """The entries of the patches as a map over offsets, (heads, 2H - 1, 2W - 1)."""
        entries = self.table[:-3] if self.with_cls_token else self.table
        stored = entries.T.unflatten(1, (2 * self.size[0] - 1, 2 * self.size[1] - 1))
        return resize_offsets(stored, grid)


def resize_offsets(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """Interpolates a map over offsets, (heads, 2h - 1, 2w - 1), bicubically for another grid."""
    target = (2 * grid[0] - 1, 2 * grid[1] - 1)
    if tuple(table.shape[1:]) == target:
        return table
    return F.interpolate(table[None], size=target, mode="bicubic", align_corners=False)[0]
