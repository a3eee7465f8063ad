"""Where tokens lie: raster order, window-major order, and the padded windows of ViTDet.

Self-attention is permutation-equivariant: ``Attn(PQ, PK, PV) = P Attn(Q, K, V)`` for any permutation P of
the tokens. So where the window divides the grid, the tokens are permuted once, right after the position embedding,
such that the tokens of a window are contiguous. A windowed block is then a reshape and a global block needs nothing.
Where the window does not divide the grid, windows are zero-padded in every block as published (ViTDet,
arXiv:2203.16527; detectron2 at 02b5c4e, ``window_partition``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class TokenLayout:
    """How a sequence of tokens maps to the grid of patches.

    The sequence is ``num_prefix`` tokens without a place (cls, registers) followed by one token per patch.

    Args:
        grid: Patches along H and W.
        window_size: Side of a window in patches; 0 means that no block is windowed.
        num_prefix: Number of cls and register tokens.
    """

    grid: tuple[int, int]
    window_size: int = 0
    num_prefix: int = 0

    @property
    def window_major(self) -> bool:
        """Whether patch tokens are stored window after window."""
        return self.window_size > 0 and all(side % self.window_size == 0 for side in self.grid)

    @property
    def num_windows(self) -> tuple[int, int]:
        """Windows along H and W, padding included."""
        height, width = (-(-side // self.window_size) for side in self.grid)
        return height, width

    def window(self) -> TokenLayout:
        """The layout of one window: its own grid in raster order, behind its copy of the prefix tokens."""
        return TokenLayout((self.window_size, self.window_size), num_prefix=self.num_prefix)

    def order(self, patches: Tensor) -> Tensor:
        """Permutes patch tokens (B, H*W, C) from raster order into the order of this layout."""
        if not self.window_major:
            return patches
        return partition_windows(patches.unflatten(1, self.grid), self.window_size).reshape(patches.shape)

    def raster(self, patches: Tensor) -> Tensor:
        """Undoes :meth:`order`: patch tokens (B, H*W, C) back to raster order."""
        if not self.window_major:
            return patches
        batch, _, channels = patches.shape
        windows = patches.reshape(-1, self.window_size**2, channels)
        return merge_windows(windows, self.window_size, self.num_windows, batch).reshape(patches.shape)

    def split(self, tokens: Tensor) -> Tensor:
        """Cuts a sequence into one sequence per window.

        Prefix tokens have no place on the grid: each window gets a copy of them.

        Args:
            tokens: (B, P + H*W, C) in the order of this layout.

        Returns:
            (B * windows, P + window_size**2, C).
        """
        prefix, patches = tokens[:, : self.num_prefix], tokens[:, self.num_prefix :]
        batch, _, channels = tokens.shape
        count = self.num_windows[0] * self.num_windows[1]
        if self.window_major:
            windows = patches.reshape(batch * count, self.window_size**2, channels)
        else:
            pad_h, pad_w = (n * self.window_size - side for n, side in zip(self.num_windows, self.grid, strict=True))
            # Zeros after norm1, as published: the qkv bias turns them into live keys that attention sees.
            padded = F.pad(patches.unflatten(1, self.grid), (0, 0, 0, pad_w, 0, pad_h))
            windows = partition_windows(padded, self.window_size)
        if not self.num_prefix:
            return windows
        copies = prefix.unsqueeze(1).expand(-1, count, -1, -1).reshape(batch * count, self.num_prefix, channels)
        return torch.cat([copies, windows], dim=1)

    def merge(self, windows: Tensor, batch: int) -> Tensor:
        """Undoes :meth:`split`; the copies of a prefix token are averaged over the windows.

        Args:
            windows: (B * windows, P + window_size**2, C).
            batch: B.

        Returns:
            (B, P + H*W, C) in the order of this layout.
        """
        channels = windows.shape[-1]
        patches = windows[:, self.num_prefix :]
        if self.window_major:
            patches = patches.reshape(batch, self.grid[0] * self.grid[1], channels)
        else:
            patches = merge_windows(patches, self.window_size, self.num_windows, batch)
            patches = patches[:, : self.grid[0], : self.grid[1]].reshape(batch, -1, channels)
        if not self.num_prefix:
            return patches
        prefix = windows[:, : self.num_prefix].reshape(batch, -1, self.num_prefix, channels).mean(dim=1)
        return torch.cat([prefix, patches], dim=1)


def partition_windows(grid: Tensor, window_size: int) -> Tensor:
    """Cuts (B, H, W, C) into windows (B * windows, window_size**2, C); the window divides H and W."""
    batch, height, width, channels = grid.shape
    rows, cols = height // window_size, width // window_size
    windows = grid.reshape(batch, rows, window_size, cols, window_size, channels).transpose(2, 3)
    return windows.reshape(batch * rows * cols, window_size**2, channels)


def merge_windows(windows: Tensor, window_size: int, num_windows: tuple[int, int], batch: int) -> Tensor:
    """Undoes :func:`partition_windows`: (B * windows, window_size**2, C) to (B, H, W, C)."""
    rows, cols = num_windows
    grid = windows.reshape(batch, rows, cols, window_size, window_size, -1).transpose(2, 3)
    return grid.reshape(batch, rows * window_size, cols * window_size, -1)
