"""What the tokens of one image do: whom they attend to, how long they are, where they think they lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models import TokenLayout, ViT


@dataclass(frozen=True)
class TokenRecord:
    """Attention and token norms of every block for one image, in raster order behind the prefix tokens.

    Args:
        grid: Patches along H and W.
        num_prefix: cls and register tokens.
        attention: Per block (heads, N, N) with N = P + H*W, query first. In a windowed block a patch attends to its
            window; what it gives to padding is left out, so such a row sums to less than 1.
        norms: (blocks, N), the Euclidean length of each token after each block, before the final norm.
    """

    grid: tuple[int, int]
    num_prefix: int
    attention: list[Tensor]
    norms: Tensor

    def of_token(self, block: int, token: int) -> Tensor:
        """What a token (its index, prefix tokens first) gives to each patch in a block: (heads, H, W)."""
        return self.attention[block][:, token, self.num_prefix :].unflatten(1, self.grid)

    def norm_map(self, block: int) -> Tensor:
        """Norms of the patches after a block, (H, W)."""
        return self.norms[block, self.num_prefix :].unflatten(0, self.grid)


def record_tokens(model: ViT, image: Tensor, blocks: tuple[int, ...] | None = None) -> TokenRecord:
    """Runs a ViT on one image and keeps attention and norms.

    Args:
        model: The ViT; it runs in evaluation mode and is left as it was.
        image: (1, 3, H, W), normalised as the model wants it.
        blocks: Blocks whose attention is kept, all by default; the others hold an empty tensor. Heads times N squared
            numbers are stored for each.

    Raises:
        ValueError: More than one image.
    """
    if image.shape[0] != 1:
        raise ValueError(f"tokens are recorded for one image, got a batch of {image.shape[0]}")
    wanted = set(range(len(model.blocks))) if blocks is None else {i % len(model.blocks) for i in blocks}
    was_training = model.training
    model.eval()
    attention: list[Tensor] = []
    norms: list[Tensor] = []
    try:
        with torch.no_grad():
            tokens, layout = model.embed(image)
            rotations = None if model.rotary is None else model.rotary(layout)
            for i, block in enumerate(model.blocks):
                kept = tokens.new_zeros(0)
                if i in wanted:
                    rotation = rotations[block.windowed] if rotations is not None else None
                    normed = block.norm1(tokens)
                    if block.windowed:
                        weights = block.attn.weights(layout.split(normed), layout.window(), rotation)
                        kept = _whole(weights, layout)
                    else:
                        kept = _raster(block.attn.weights(normed, layout, rotation)[0], layout)
                attention.append(kept)
                tokens = block(tokens, layout, rotations)
                prefix, patches = tokens[:, : layout.num_prefix], layout.raster(tokens[:, layout.num_prefix :])
                norms.append(torch.cat([prefix, patches], dim=1)[0].norm(dim=-1))
    finally:
        model.train(was_training)
    return TokenRecord(layout.grid, layout.num_prefix, attention, torch.stack(norms))


def _places(layout: TokenLayout) -> Tensor:
    """Index in raster order (prefix first) of every token in the order of ``layout``."""
    count = layout.num_prefix + layout.grid[0] * layout.grid[1]
    indices = torch.arange(count)
    patches = layout.order(indices[layout.num_prefix :].double()[None, :, None])[0, :, 0].long()
    return torch.cat([indices[: layout.num_prefix], patches])


def _raster(weights: Tensor, layout: TokenLayout) -> Tensor:
    """(heads, N, N) in the order of ``layout`` to raster order."""
    back = torch.argsort(_places(layout))
    return weights[:, back][:, :, back]


def _whole(weights: Tensor, layout: TokenLayout) -> Tensor:
    """Attention inside windows, (windows, heads, n, n), as (heads, N, N) over the whole image in raster order."""
    indices = _places(layout).double() + 1  # padding is 0 after the split
    windows = layout.split(indices[None, :, None])[..., 0].long() - 1
    count = len(indices)
    whole = weights.new_zeros(weights.shape[1], count, count)
    for window, places in zip(weights, windows, strict=True):
        inside = places >= 0
        queries, keys = torch.meshgrid(places[inside], places[inside], indexing="ij")
        whole[:, queries, keys] += window[:, inside][:, :, inside]
    # Every window has its copy of the prefix tokens, and the copies are averaged.
    whole[:, : layout.num_prefix] /= len(windows)
    return whole


def attention_rollout(record: TokenRecord) -> Tensor:
    """Attention rollout (arXiv:2005.00928): the product over blocks of ``0.5 A + 0.5 I``, heads averaged.

    Args:
        record: With the attention of every block.

    Returns:
        (N, N): how much each input token is mixed into each output token, rows summing to 1.

    Raises:
        ValueError: The attention of a block was not recorded.
    """
    if any(weights.numel() == 0 for weights in record.attention):
        raise ValueError("attention rollout needs the attention of every block: record_tokens(model, image)")
    total = torch.eye(record.norms.shape[1])
    for weights in record.attention:
        mean = weights.mean(dim=0)
        mean = mean / mean.sum(dim=-1, keepdim=True)  # windows give a part to their padding
        total = (0.5 * mean + 0.5 * torch.eye(len(mean))) @ total
    return total


def most_attended(record: TokenRecord, block: int) -> tuple[int, float]:
    """The token that receives most attention in a block, and its share of all, averaged over heads and queries.

    Args:
        record: With the attention of this block.
        block: Its index.
    """
    received = record.attention[block].mean(dim=(0, 1))
    share, token = received.max(dim=0)
    return int(token), float(share / received.sum())


def find_outliers(record: TokenRecord, block: int, factor: float = 3.0) -> Tensor:
    """Patches whose norm after a block is more than ``factor`` times the median, (H, W) of bool.

    Such tokens of a ViT without registers hold global information instead of what lies at their place
    (arXiv:2309.16588).
    """
    norms = record.norm_map(block)
    return norms > factor * norms.median()


def position_similarity(model: ViT, grid: tuple[int, int], place: tuple[int, int]) -> Tensor | None:
    """Cosine similarity of one patch's position embedding with all others, (H, W); None without an absolute table.

    Args:
        model: The ViT.
        grid: Patches along H and W.
        place: Row and column of the patch.
    """
    if model.pos_embed is None:
        return None
    with torch.no_grad():
        table = F.normalize(model.pos_embed.patches(grid)[0], dim=-1).unflatten(0, grid)
        return table @ table[place]
