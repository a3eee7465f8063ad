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
