"""Rewrites of a trained model into a form that is static and fast on device, equal in result.

Whatever depends only on the input's shape is computed here, once: the device never sees a cubic resize.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ..models import TokenLayout, ViT
from ..models.attention import Attention
from ..models.lora import merge_lora
from ..models.position import PositionEmbedding, SeparateEmbedding, SinCosEmbedding
from ..models.relative import DecomposedRelativePosition, RelativePositionBias, one_hot_places
from ..models.rotary import RotaryEmbedding, Rotation


class FixedPositions(nn.Module):
    """A position embedding whose table is already interpolated to one grid.

    Args:
        source: The trained position embedding.
        grid: Patches along H and W of the static shape.
        with_cls_token: Whether the ViT has one.
    """

    def __init__(
        self,
        source: PositionEmbedding | SinCosEmbedding | SeparateEmbedding,
        grid: tuple[int, int],
        with_cls_token: bool,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.register_buffer("table", source.patches(grid).detach().clone())
        self.register_buffer("cls_table", source.cls().detach().clone() if with_cls_token else None)

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


class FixedRotary(nn.Module):
    """Rotary positions of one layout.

    Args:
        source: The model's rotary embedding.
        layout: Of the static shape.
    """

    def __init__(self, source: RotaryEmbedding, layout: TokenLayout) -> None:
        super().__init__()
        self.layout = layout
        whole, windows = source(layout)
        for name, rotation in (("whole", whole), ("windows", windows)):
            self.register_buffer(name, torch.stack([rotation.cos, rotation.sin]))

    def forward(self, layout: TokenLayout) -> tuple[Rotation, Rotation]:
        """The rotations for the whole image and for its windows."""
        if layout != self.layout:
            raise ValueError(f"this model is fixed to the grid {self.layout.grid}, not {layout.grid}")
        return Rotation(*self.get_buffer("whole")), Rotation(*self.get_buffer("windows"))


class FixedRelativePosition(nn.Module):
    """Decomposed relative position of one layout: its tables and the one-hot places as constants.

    Args:
        source: The trained tables.
        layout: The sequence that attention sees.
        scale: Factor that the query already carries; the tables want an unscaled one and are divided by it.
    """

    def __init__(self, source: DecomposedRelativePosition, layout: TokenLayout, scale: float) -> None:
        super().__init__()
        self.layout = layout
        rows, columns = (table.detach().transpose(1, 2) / scale for table in source.tables(layout.grid))
        self.register_buffer("rows", rows)  # (H, head_dim, H)
        self.register_buffer("columns", columns)  # (W, head_dim, W)
        self.register_buffer("places", one_hot_places(layout, rows).T.contiguous())  # (H + W, N)

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Widens query (B, heads, N, head_dim) and key (B, heads, head_dim, N) by H + W channels."""
        prefix = self.layout.num_prefix
        patches = self.layout.raster(query[..., prefix:, :].flatten(0, 1)).unflatten(1, self.layout.grid)
        vertical = patches @ self.rows
        horizontal = (patches.transpose(1, 2) @ self.columns).transpose(1, 2)
        terms = torch.cat([vertical, horizontal], dim=-1).flatten(1, 2)
        terms = self.layout.order(terms).unflatten(0, query.shape[:2])
        if prefix:
            terms = torch.cat([terms.new_zeros(*terms.shape[:2], prefix, terms.shape[-1]), terms], dim=2)
        assert isinstance(self.places, Tensor)
        places = self.places.expand(*key.shape[:2], -1, -1)
        return torch.cat([query, terms], dim=-1), torch.cat([key, places], dim=2)


class ExplicitAttention(nn.Module):
    """Attention with separate q, k and v layers and the product written out; the scale is folded into q.

    Equal to :class:`vitdense.models.attention.Attention` to rounding. Runtimes fuse and quantize three plain layers and
    two products better than one layer that is split (5 % in INT8 on OpenVINO), and a q that is scaled before the
    product does not overflow in FP16.

    Args:
        source: The trained attention.
        layout: The sequence that it sees.
    """

    def __init__(self, source: Attention, layout: TokenLayout) -> None:
        super().__init__()
        self.num_heads, self.head_dim = source.num_heads, source.head_dim
        scale = source.head_dim**-0.5
        self.q, self.k, self.v = (
            _linear_part(source.qkv, part, factor) for part, factor in ((0, scale), (1, 1.0), (2, 1.0))
        )
        self.proj = source.proj
        self.rel_pos: FixedRelativePosition | None = None
        if isinstance(source.rel_pos, DecomposedRelativePosition):
            self.rel_pos = FixedRelativePosition(source.rel_pos, layout, scale)
        rel_pos = source.rel_pos
        bias = rel_pos(layout).detach() if isinstance(rel_pos, RelativePositionBias) else None
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor, layout: TokenLayout, rotation: Rotation | None = None) -> Tensor:
        """Maps (B, N, C) to (B, N, C)."""
        batch, length, channels = x.shape
        heads = (batch, length, self.num_heads, self.head_dim)
        query = self.q(x).reshape(heads).transpose(1, 2)  # B heads N head_dim
        if rotation is None:
            key = self.k(x).reshape(heads).permute(0, 2, 3, 1)  # B heads head_dim N
        else:
            query = rotation(query)
            key = rotation(self.k(x).reshape(heads).transpose(1, 2)).transpose(2, 3)
        value = self.v(x).reshape(heads).transpose(1, 2)
        if self.rel_pos is not None:
            query, key = self.rel_pos(query, key)
        scores = query @ key
        if self.bias is not None:
            scores = scores + self.bias
        out = scores.softmax(dim=-1) @ value
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
    merge_lora(model)
    for vit in [module for module in model.modules() if isinstance(module, ViT)]:
        height, width = (-(-side // vit.patch_size) for side in shape)
        layout = vit.layout((height, width))
        if vit.pos_embed is not None:
            with_cls_token = vit.cls_token is not None
            vit.pos_embed = FixedPositions(vit.pos_embed, layout.grid, with_cls_token)  # type: ignore[assignment]
        if vit.rotary is not None:
            vit.rotary = FixedRotary(vit.rotary, layout)  # type: ignore[assignment]
        for block in vit.blocks:
            inner = layout.window() if block.windowed else layout
            block.attn = ExplicitAttention(block.attn, inner)  # type: ignore[arg-type]
    return model.eval().requires_grad_(False)
