"""Arithmetic and memory of every block, counted from the shapes."""

from __future__ import annotations

from dataclasses import dataclass

from ..models import ViT


@dataclass(frozen=True)
class BlockCost:
    """What one block costs for one image.

    A multiply-add counts as two operations. Counted are the matrix products; norms, softmax, GELU, positions and
    residual bottlenecks are not.

    Args:
        windowed: Whether attention stays inside windows.
        tokens: Tokens that run through the linear layers, copies and padding of windows left out.
        projections: FLOPs of q, k, v and the output projection.
        products: FLOPs of the scores and of weighting the values.
        mlp: FLOPs of the MLP.
        weight_bytes: Of the parameters, in FP32.
        score_bytes: Of the score matrix of all heads in FP32, which a fused kernel never stores.
    """

    windowed: bool
    tokens: int
    projections: int
    products: int
    mlp: int
    weight_bytes: int
    score_bytes: int

    @property
    def attention(self) -> int:
        """FLOPs of attention with its projections."""
        return self.projections + self.products


def block_costs(model: ViT, shape: tuple[int, int]) -> list[BlockCost]:
    """Costs of every block for an image of ``shape`` (H, W) in pixels.

    The two products pass the MLP when the keys that a query sees are more than 4 times the width (mlp_ratio 4), and
    attention with its projections does at 2 times the width.
    """
    layout = model.layout((-(-shape[0] // model.patch_size), -(-shape[1] // model.patch_size)))
    dims, heads = model.arch.embed_dims, model.arch.num_heads
    costs = []
    for block in model.blocks:
        tokens = layout.num_prefix + layout.grid[0] * layout.grid[1]
        if block.windowed:
            windows = layout.num_windows[0] * layout.num_windows[1]
            keys = layout.num_prefix + layout.window_size**2
            queries = windows * keys  # attention also runs on the padding and on the copies of the prefix tokens
        else:
            queries = keys = tokens
        mlp_weights = sum(parameter.numel() for parameter in block.mlp.parameters() if parameter.ndim == 2)
        costs.append(
            BlockCost(
                windowed=block.windowed,
                tokens=tokens,
                projections=2 * queries * 4 * dims * dims,
                products=2 * 2 * queries * keys * dims,
                mlp=2 * tokens * mlp_weights,
                weight_bytes=4 * sum(parameter.numel() for parameter in block.parameters()),
                score_bytes=4 * heads * queries * keys,
            )
        )
    return costs
