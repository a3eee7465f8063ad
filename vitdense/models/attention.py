"""Multi-head self-attention on one fused scaled-dot-product kernel."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .relative import DecomposedRelativePosition, RelativePositionBias
from .rotary import Rotation
from .windows import TokenLayout


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
        batch, length, channels = x.shape
        # B N 3C -> 3 B heads N head_dim
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        if isinstance(self.rel_pos, DecomposedRelativePosition):
            wide = F.scaled_dot_product_attention(*self.rel_pos.widen(query, key, value, layout), scale=1.0)
            out = wide[..., : self.head_dim]
        else:
            bias = None if self.rel_pos is None else self.rel_pos(layout)[None]
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.proj(out.transpose(1, 2).reshape(batch, length, channels))
