"""Tokens of the frozen blocks, kept per image so that a training computes them once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor


class FeatureCache:
    """Keeps what frozen blocks make of an image, found again by the pixels of the image itself.

    The key is a hash of the normalised and padded image, so a flipped or otherwise augmented copy is an image of its
    own, and no wrong features can come back. When the memory is full, further images are computed each time.

    Args:
        max_bytes: Memory for the kept tokens.

    Attributes:
        hits: Images that were found.
        misses: Images that were computed.
        num_bytes: Memory in use.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.hits = self.misses = self.num_bytes = 0
        self._largest = 0
        self._kept: dict[bytes, dict[int, Tensor]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __deepcopy__(self, memo: dict[int, object]) -> FeatureCache:
        """A copied model (EMA) starts with an empty cache: its frozen weights are its own."""
        return FeatureCache(self.max_bytes)

    @property
    def full(self) -> bool:
        """Whether an image was not kept for want of memory."""
        return self.misses > 0 and self.num_bytes + self._largest > self.max_bytes

    def __call__(self, images: Tensor, compute: Callable[[Tensor], dict[int, Tensor]]) -> dict[int, Tensor]:
        """Tokens (B, N, C) by block for images (B, 3, H, W); ``compute`` is called with those not seen before."""
        keys = [_hash(image) for image in images]
        new = [i for i, key in enumerate(keys) if key not in self._kept]
        self.hits += len(keys) - len(new)
        self.misses += len(new)
        found = {i: self._kept[key] for i, key in enumerate(keys) if key in self._kept}
        if new:
            computed = compute(images[new])
            for row, i in enumerate(new):
                found[i] = {block: tokens[row] for block, tokens in computed.items()}
                self._keep(keys[i], found[i])
        blocks = found[0].keys()
        return {block: torch.stack([found[i][block].to(images.device) for i in range(len(keys))]) for block in blocks}

    def _keep(self, key: bytes, tokens: dict[int, Tensor]) -> None:
        size = sum(value.nbytes for value in tokens.values())
        self._largest = max(self._largest, size)
        if self.num_bytes + size <= self.max_bytes and key not in self._kept:
            self._kept[key] = {block: value.detach().to("cpu", copy=True) for block, value in tokens.items()}
            self.num_bytes += size


def _hash(image: Tensor) -> bytes:
    pixels = image.detach().cpu().contiguous()
    digest = hashlib.blake2b(pixels.numpy().tobytes(), digest_size=16)
    digest.update(str((tuple(pixels.shape), pixels.dtype)).encode())
    return digest.digest()
