"""Rewrites of a trained model into a form that is static and fast on device, equal in result.

Whatever depends only on the input's shape is computed here, once: the device never sees a cubic resize.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ..models import PositionEmbedding, ViT
from ..models.attention import Attention


class FixedPositions(nn.Module):
    """A position embedding whose table is already interpolated to one grid.

    Args:
        source: The trained position embedding.
        grid: Patches along H and W of the static shape.
    """

    def __init__(self, source: PositionEmbedding, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.register_buffer("table", source.patches(grid).detach().clone())
        self.register_buffer("cls_table", source.cls().detach().clone() if source.with_cls_token else None)

    def patches(self, grid: tuple[int, int]) -> Tensor:
        """Positions of the patches, (1, H*W, C)."""
        if grid != self.grid:
            raise ValueError(f"this model is fixed to the grid {self.grid}, not {grid}")
        assert isinstance(self.table, Tensor)
        return self.table

    def cls(self) -> Tensor:
        """Position of the cls token, (1, 1, C)."""
        assert isinstance(self.cls_table, Tensor)
        return self.cls_table


class ExplicitAttention(nn.Module):
    """Attention with separate q, k and v layers and the product written out; the scale is folded into q.

    Equal to :class:`vitdense.models.attention.Attention` to rounding. Runtimes fuse and quantize three plain layers and
    two products better than one layer that is split (5 % in INT8 on OpenVINO), and a q that is scaled before the
    product does not overflow in FP16.

    Args:
        source: The trained attention.
    """

    def __init__(self, source: Attention) -> None:
        super().__init__()
        self.num_heads, self.head_dim = source.num_heads, source.head_dim
        scale = source.head_dim**-0.5
        self.q, self.k, self.v = (
            _linear_part(source.qkv, part, factor) for part, factor in ((0, scale), (1, 1.0), (2, 1.0))
        )
        self.proj = source.proj

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        batch, length, channels = x.shape
        heads = (batch, length, self.num_heads, self.head_dim)
        query = self.q(x).reshape(heads).transpose(1, 2)  # B heads N head_dim
        key = self.k(x).reshape(heads).permute(0, 2, 3, 1)  # B heads head_dim N
        value = self.v(x).reshape(heads).transpose(1, 2)
        out = (query @ key).softmax(dim=-1) @ value
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, length, channels))
        return projected


def _linear_part(joint: nn.Linear, part: int, factor: float) -> nn.Linear:
    """The q (0), k (1) or v (2) third of a joint qkv layer, times ``factor``."""
    width = joint.out_features // 3
    rows = slice(part * width, (part + 1) * width)
    layer = nn.Linear(joint.in_features, width, bias=joint.bias is not None)
    with torch.no_grad():
        layer.weight.copy_(joint.weight[rows] * factor)
        if joint.bias is not None:
            layer.bias.copy_(joint.bias[rows] * factor)
    return layer


def lower(model: nn.Module, shape: tuple[int, int]) -> nn.Module:
    """Copies a model and fixes every ViT in it to one input shape.

    Args:
        model: In evaluation mode; it is not changed.
        shape: (H, W) of the input in pixels.

    Returns:
        The copy, on the CPU, in evaluation mode and without gradients.

    Raises:
        ValueError: The model is in training mode.
    """
    if model.training:
        raise ValueError("lower() needs a model in evaluation mode: call model.eval() first")
    model = copy.deepcopy(model).cpu().requires_grad_(False)
    for vit in [module for module in model.modules() if isinstance(module, ViT)]:
        height, width = (-(-side // vit.patch_size) for side in shape)
        if vit.pos_embed is not None:
            vit.pos_embed = FixedPositions(vit.pos_embed, (height, width))  # type: ignore[assignment]
        for block in vit.blocks:
            block.attn = ExplicitAttention(block.attn)  # type: ignore[arg-type]
    return model.eval().requires_grad_(False)
