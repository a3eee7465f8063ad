"""The pre-norm transformer block and its parts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .norm import LayerNorm2d
from .relative import DecomposedRelativePosition, RelativePositionBias
from .rotary import Rotation
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


class SwiGlu(nn.Module):
    """Gated MLP (arXiv:2002.05202): ``w3(silu(a) * b)`` with a and b the halves of ``w12(x)``.

    Args:
        embed_dims: Width of a token.
        hidden_dims: Width of each half.
    """

    def __init__(self, embed_dims: int, hidden_dims: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(embed_dims, 2 * hidden_dims)
        self.w3 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


MLPS: dict[str, type[Mlp] | type[SwiGlu]] = {"gelu": Mlp, "swiglu": SwiGlu}


class ResidualBottleneck(nn.Module):
    """Convolutional propagation block of ViTDet: 1x1, 3x3, 1x1 with norms, added to its input.

    The last norm starts at zero, so that a pre-trained backbone is unchanged at first (detectron2 at 02b5c4e,
    ``ResBottleneckBlock``).

    Args:
        embed_dims: Width of a token; the convolutions inside have half of it.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__()
        inner = embed_dims // 2
        self.conv1 = nn.Conv2d(embed_dims, inner, kernel_size=1, bias=False)
        self.norm1 = LayerNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, padding=1, bias=False)
        self.norm2 = LayerNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, embed_dims, kernel_size=1, bias=False)
        self.norm3 = LayerNorm2d(embed_dims)
        nn.init.zeros_(self.norm3.weight)
        nn.init.zeros_(self.norm3.bias)

    def forward(self, x: Tensor, layout: TokenLayout) -> Tensor:
        """Maps tokens (B, P + H*W, C), in the order of ``layout``, to the same shape; prefix tokens pass unchanged."""
        prefix, patches = x[:, : layout.num_prefix], x[:, layout.num_prefix :]
        image = layout.raster(patches).transpose(1, 2).unflatten(2, layout.grid)
        image = F.gelu(self.norm1(self.conv1(image)))
        image = F.gelu(self.norm2(self.conv2(image)))
        change = layout.order(self.norm3(self.conv3(image)).flatten(2).transpose(1, 2))
        return torch.cat([prefix, patches + change], dim=1)


class Block(nn.Module):
    """Pre-norm transformer block: ``x + attn(norm1(x))``, ``x + mlp(norm2(x))``, and a residual bottleneck if any.

    Args:
        embed_dims: Width of a token.
        num_heads: Attention heads.
        mlp_ratio: Hidden width of the MLP over ``embed_dims``.
        windowed: Whether attention stays inside windows.
        qkv_bias: Whether q, k and v have a bias.
        layer_scale_init: Start of the LayerScale factors; None for no LayerScale.
        drop_path: Probability of stochastic depth for both branches.
        norm_eps: Epsilon of both LayerNorms.
        mlp: 'gelu' (:class:`Mlp`) or 'swiglu' (:class:`SwiGlu`).
        rel_pos: Relative position inside attention; None for none.
        residual: Whether a :class:`ResidualBottleneck` follows.
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
        mlp: str = "gelu",
        rel_pos: DecomposedRelativePosition | RelativePositionBias | None = None,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.windowed = windowed
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = Attention(embed_dims, num_heads, qkv_bias=qkv_bias, rel_pos=rel_pos)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLPS[mlp](embed_dims, round(embed_dims * mlp_ratio))
        if layer_scale_init is None:
            self.ls1, self.ls2 = nn.Identity(), nn.Identity()
        else:
            self.ls1, self.ls2 = (LayerScale(embed_dims, layer_scale_init) for _ in range(2))
        self.drop_path = DropPath(drop_path)
        self.residual = ResidualBottleneck(embed_dims) if residual else None

    def forward(self, x: Tensor, layout: TokenLayout, rotations: tuple[Rotation, Rotation] | None = None) -> Tensor:
        """Maps tokens (B, P + H*W, C), in the order of ``layout``, to the same shape.

        Args:
            x: The tokens.
            layout: Where they lie.
            rotations: Rotary positions for the whole image and for its windows; None for none.
        """
        x = x + self.drop_path(self.ls1(self._attend(self.norm1(x), layout, rotations)))
        x = x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))
        return x if self.residual is None else self.residual(x, layout)

    def _attend(self, x: Tensor, layout: TokenLayout, rotations: tuple[Rotation, Rotation] | None) -> Tensor:
        rotation = rotations[self.windowed] if rotations is not None else None
        if not self.windowed:
            return self.attn(x, layout, rotation)
        return layout.merge(self.attn(layout.split(x), layout.window(), rotation), batch=x.shape[0])
