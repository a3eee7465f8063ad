"""Tokens of the frozen blocks, kept per image so that a training computes them once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor


class FeatureCache:
    """Keeps what frozen blocks make of an image, found again by the pixels of the image itself.

    The key is a hash of the normalised and padded image, so a flipped or otherwise augmented copy is an image of its
    own, and so is one that is padded to another size; no wrong features can come back. When the memory is full, further
    images are computed each time.

    Args:
        max_bytes: Memory for the kept tokens.

    Attributes:
        hits: Images that were found.
        misses: Images that were computed.
        rejected: Images among them that were not kept for want of memory.
        num_bytes: Memory in use.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.hits = self.misses = self.rejected = self.num_bytes = 0
        self._kept: dict[bytes, dict[int, Tensor]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __deepcopy__(self, memo: dict[int, object]) -> FeatureCache:
        """A copied model (EMA) starts with an empty cache: its frozen weights are its own."""
        return FeatureCache(self.max_bytes)

    def __call__(self, images: Tensor, compute: Callable[[Tensor], dict[int, Tensor]]) -> dict[int, Tensor]:
        """Tokens (B, N, C) by block for images (B, 3, H, W); ``compute`` is called with those not seen before."""
        keys = [_hash(image) for image in images]
        new = {key: i for i, key in enumerate(keys) if key not in self._kept}  # each once, twice in a batch or not
        self.hits += len(keys) - len(new)
        self.misses += len(new)
        found = {key: self._kept[key] for key in keys if key in self._kept}
        if new:
            computed = compute(images[list(new.values())])
            for row, key in enumerate(new):
                found[key] = {block: tokens[row] for block, tokens in computed.items()}
                self._keep(key, found[key])
        return {block: torch.stack([found[key][block].to(images.device) for key in keys]) for block in found[keys[0]]}

    def _keep(self, key: bytes, tokens: dict[int, Tensor]) -> None:
        size = sum(value.nbytes for value in tokens.values())
        if self.num_bytes + size > self.max_bytes:
            self.rejected += 1
            return
        self._kept[key] = {block: value.detach().to("cpu", copy=True) for block, value in tokens.items()}
        self.num_bytes += size


def _hash(image: Tensor) -> bytes:
    pixels = image.detach().cpu().contiguous()
    digest = hashlib.blake2b(pixels.view(torch.uint8).numpy().data, digest_size=16)
    digest.update(str((tuple(pixels.shape), pixels.dtype)).encode())
    return digest.digest()
