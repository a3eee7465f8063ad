"""Changing the patch size of patch-embedding weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def resample_patch_kernel(weight: Tensor, patch_size: int) -> Tensor:
    """Resamples a patch projection such that tokens keep their values (FlexiViT, arXiv:2212.08013, equation 4).

    Resizing an image patch is linear, ``x -> B x``. The new kernel w' is the least-squares solution of
    ``<B x, w'> = <x, w>`` for all x: ``w' = pinv(B^T) w``. When the patch grows this is exact: the token of the
    resized patch equals the token of the original.

    Args:
        weight: (embed_dims, channels, old, old).
        patch_size: The new side in pixels.

    Returns:
        (embed_dims, channels, patch_size, patch_size).
    """
    old = weight.shape[-1]
    if old == patch_size:
        return weight
    basis = torch.eye(old * old, dtype=torch.float64).reshape(old * old, 1, old, old)
    resized = F.interpolate(basis, size=(patch_size, patch_size), mode="bilinear", align_corners=False)
    transpose = resized.reshape(old * old, patch_size**2)  # row i is B applied to basis vector i, that is B^T
    kernel = weight.double().flatten(2) @ torch.linalg.pinv(transpose).T
    return kernel.to(weight.dtype).unflatten(2, (patch_size, patch_size))


def resize_bias_table(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """Resizes BEiT's map of offsets for another grid, as its repository does when it fine-tunes at another size.

    For a larger grid the stored offsets are placed at distances that grow geometrically from the centre up to the
    largest new one, and a cubic spline is read at the whole offsets: near neighbours keep their values, far ones are
    stretched. For a smaller grid, and for a window, the offsets that occur in it are cut out unchanged.

    Args:
        table: (heads, 2h - 1, 2w - 1).
        grid: The new (H, W).

    Returns:
        (heads, 2H - 1, 2W - 1).
    """
    for axis, side in ((1, grid[0]), (2, grid[1])):
        reach = table.shape[axis] // 2
        if side - 1 <= reach:
            table = table.narrow(axis, reach - (side - 1), 2 * side - 1)
            continue
        matrix = _spline_matrix(_geometric_places(reach, side - 1), torch.arange(-(side - 1), side).double())
        table = torch.tensordot(table.double(), matrix, dims=([axis], [1])).movedim(-1, axis).to(table.dtype)
    return table


def _geometric_places(count: int, reach: int) -> Tensor:
    """``count`` distances 1, 1 + q, 1 + q + q^2, ... up to about ``reach``, mirrored around 0."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        low, high = (low, ratio) if (1 - ratio**count) / (1 - ratio) > reach else (ratio, high)
    distances = torch.cumsum(ratio ** torch.arange(count, dtype=torch.float64), dim=0)
    return torch.cat([-distances.flip(0), torch.zeros(1, dtype=torch.float64), distances])


def _spline_matrix(knots: Tensor, places: Tensor) -> Tensor:
    """Linear map from values at ``knots`` to the cubic spline through them (not-a-knot) at ``places``.

    Beyond the last knot the value at the last knot is taken, as FITPACK's ``regrid`` does for BEiT.
    """
    count = len(knots)
    values = torch.eye(count, dtype=knots.dtype)
    steps = knots.diff()
    # Second derivatives m: the usual continuity of the first derivative inside, and of the third at the two ends.
    system = torch.zeros(count, count, dtype=knots.dtype)
    right = torch.zeros(count, count, dtype=knots.dtype)
    slopes = values.diff(dim=0) / steps[:, None]
    for i in range(1, count - 1):
        system[i, i - 1 : i + 2] = torch.stack([steps[i - 1], 2 * (steps[i - 1] + steps[i]), steps[i]])
        right[i] = 6 * (slopes[i] - slopes[i - 1])
    system[0, :3] = torch.stack([steps[1], -(steps[0] + steps[1]), steps[0]])
    system[-1, -3:] = torch.stack([steps[-1], -(steps[-2] + steps[-1]), steps[-2]])
    curvature = torch.linalg.solve(system, right)
    places = places.clamp(knots[0], knots[-1])
    left = (torch.searchsorted(knots, places, right=True) - 1).clamp(0, count - 2)
    width, after, before = steps[left], knots[left + 1] - places, places - knots[left]
    linear = (after / width)[:, None] * values[left] + (before / width)[:, None] * values[left + 1]
    bend = (after**3 / width - width * after)[:, None] * curvature[left]
    bend = bend + (before**3 / width - width * before)[:, None] * curvature[left + 1]
    return linear + bend / 6
