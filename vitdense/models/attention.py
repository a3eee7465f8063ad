"""Multi-head self-attention on one fused scaled-dot-product kernel."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention over whatever sequence it is given; windows are cut before it.

    Args:
        embed_dims: Width of a token.
        num_heads: Heads; divides ``embed_dims``.
        qkv_bias: Whether q, k and v have a bias. Defaults to True.
    """

    def __init__(self, embed_dims: int, num_heads: int, qkv_bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dims // num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        batch, length, channels = x.shape
        # B N 3C -> 3 B heads N head_dim
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        out = F.scaled_dot_product_attention(query, key, value)
        return self.proj(out.transpose(1, 2).reshape(batch, length, channels))
