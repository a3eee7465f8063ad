"""Multi-head self-attention on one fused scaled-dot-product kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from .relative import DecomposedRelativePosition, RelativePositionBias
from .rotary import Rotation
from .windows import TokenLayout


class AttentionInputs(NamedTuple):
    """What scaled-dot-product attention is given.

    Args:
        query: (B, heads, N, width): a head's channels, and behind them those of a decomposed relative position.
        key: Likewise.
        value: Likewise.
        bias: (1, heads, N, N), added to the scores; None for none.
        scale: Factor on the products of query and key.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    scale: float


class Attention(nn.Module):
    """Multi-head self-attention over whatever sequence it is given; windows are cut before it.

    Args:
        embed_dims: Width of a token.
        num_heads: Heads; divides ``embed_dims``.
        qkv_bias: Whether q, k and v have a bias. Defaults to True.
        rel_pos: Relative position of the tokens. Defaults to None.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: bool = True,
        rel_pos: DecomposedRelativePosition | RelativePositionBias | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dims // num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.rel_pos = rel_pos

    def forward(self, x: Tensor, layout: TokenLayout, rotation: Rotation | None = None) -> Tensor:
        """Maps (B, N, C) to (B, N, C).

        Args:
            x: Tokens of ``layout``: of an image, or of a window.
            layout: Where the tokens of this sequence lie.
            rotation: Rotary position of each token; None for none.
        """
        query, key, value, bias, scale = self.inputs(x, layout, rotation)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)[..., : self.head_dim]
        return self.proj(out.transpose(1, 2).reshape(x.shape))

    def weights(self, x: Tensor, layout: TokenLayout, rotation: Rotation | None = None) -> Tensor:
        """What tokens attend to, (B, heads, N, N), query first; for looking at: :meth:`forward` never stores it."""
        query, key, _, bias, scale = self.inputs(x, layout, rotation)
        scores = query @ key.transpose(2, 3) * scale
        return (scores if bias is None else scores + bias).softmax(dim=-1)

    def inputs(self, x: Tensor, layout: TokenLayout, rotation: Rotation | None = None) -> AttentionInputs:
        """Query, key and value of tokens (B, N, C), with their positions worked in."""
        batch, length, _ = x.shape
        # B N 3C -> 3 B heads N head_dim
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        if isinstance(self.rel_pos, DecomposedRelativePosition):
            return AttentionInputs(*self.rel_pos.widen(query, key, value, layout), bias=None, scale=1.0)
        bias = None if self.rel_pos is None else self.rel_pos(layout)[None]
        return AttentionInputs(query, key, value, bias, self.head_dim**-0.5)
