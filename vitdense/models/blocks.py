"""The pre-norm transformer block and its parts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import Attention
from .windows import TokenLayout


class DropPath(nn.Module):
    """Stochastic depth (arXiv:1603.09382): drops a residual branch per sample while training, scaled to keep its mean.

    Args:
        drop_prob: Probability with which a sample loses the branch.
    """

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        if not self.training or self.drop_prob == 0.0:
            return x
        keep = 1.0 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask / keep

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob:.3f}"


class LayerScale(nn.Module):
    """Learned factor per channel on a residual branch (CaiT, arXiv:2103.17239).

    Args:
        embed_dims: Width of a token.
        init_value: Value that every factor starts from.
    """

    def __init__(self, embed_dims: int, init_value: float) -> None:
        super().__init__()
        self.init_value = init_value
        self.gamma = nn.Parameter(torch.full((embed_dims,), float(init_value)))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        return x * self.gamma


class Mlp(nn.Module):
    """Two linear layers with an exact (erf) GELU between them.

    Args:
        embed_dims: Width of a token.
        hidden_dims: Width between the layers.
    """

    def __init__(self, embed_dims: int, hidden_dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """Pre-norm transformer block: ``x + attn(norm1(x))``, then ``x + mlp(norm2(x))``.

    Args:
        embed_dims: Width of a token.
        num_heads: Attention heads.
        mlp_ratio: Hidden width of the MLP over ``embed_dims``.
        windowed: Whether attention stays inside windows.
        qkv_bias: Whether q, k and v have a bias.
        layer_scale_init: Start of the LayerScale factors; None for no LayerScale.
        drop_path: Probability of stochastic depth for both branches.
        norm_eps: Epsilon of both LayerNorms.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        mlp_ratio: float,
        *,
        windowed: bool,
        qkv_bias: bool,
        layer_scale_init: float | None,
        drop_path: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.windowed = windowed
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = Attention(embed_dims, num_heads, qkv_bias=qkv_bias)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio))
        if layer_scale_init is None:
            self.ls1, self.ls2 = nn.Identity(), nn.Identity()
        else:
            self.ls1, self.ls2 = (LayerScale(embed_dims, layer_scale_init) for _ in range(2))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, layout: TokenLayout) -> Tensor:
        """Maps tokens (B, P + H*W, C), in the order of ``layout``, to the same shape."""
        x = x + self.drop_path(self.ls1(self._attend(self.norm1(x), layout)))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def _attend(self, x: Tensor, layout: TokenLayout) -> Tensor:
        if not self.windowed:
            return self.attn(x)
        return layout.merge(self.attn(layout.split(x)), batch=x.shape[0])
