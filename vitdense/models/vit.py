"""The plain Vision Transformer as a backbone for dense prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule, initialize
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..registry import MODELS
from .blocks import MLPS, Block, Mlp
from .feature_cache import FeatureCache
from .lora import add_lora
from .position import PositionEmbedding, SeparateEmbedding, SinCosEmbedding
from .relative import DecomposedRelativePosition, RelativePositionBias
from .rotary import RotaryEmbedding
from .sizes import resolve_arch
from .windows import TokenLayout


class PatchEmbed(nn.Module):
    """Cuts an image into patches and projects each: a convolution whose stride is its kernel.

    Args:
        in_channels: Channels of the image.
        embed_dims: Width of a token.
        patch_size: Side of a patch in pixels.
    """

    def __init__(self, in_channels: int, embed_dims: int, patch_size: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(in_channels, embed_dims, kernel_size=patch_size, stride=patch_size)

    def forward(self, image: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Maps an image (B, 3, H, W) to tokens (B, gh * gw, C) in raster order and the grid (gh, gw).

        The image is zero-padded at the bottom and right to whole patches: gh = ceil(H / patch), gw = ceil(W / patch).
        """
        pad_h, pad_w = (-int(side) % self.patch_size for side in image.shape[-2:])
        if pad_h or pad_w:
            image = F.pad(image, (0, pad_w, 0, pad_h))
        return self.proj(image).flatten(2).transpose(1, 2), self.grid(image.shape)

    def grid(self, shape: Sequence[int]) -> tuple[int, int]:
        """Patches (gh, gw) of an image of this shape (..., H, W)."""
        height, width = (-(-int(side) // self.patch_size) for side in shape[-2:])
        return height, width


@MODELS.register_module()
class ViT(BaseModule):
    """Plain Vision Transformer (arXiv:2010.11929) with windowed and global blocks (ViTDet, arXiv:2203.16527).

    Takes images of any size and gives maps of ``(ceil(H / patch_size), ceil(W / patch_size))``. Where ``window_size``
    divides the grid, tokens are permuted once so that windows are contiguous (see :mod:`.windows`); the result is
    the same as partitioning in every block. In a windowed block each window sees its own copy of the cls and register
    tokens; the copies are averaged afterwards.

    Args:
        arch: 'tiny', 'small', 'base', 'large', 'huge', 'giant', or a dict of ``embed_dims``, ``depth``, ``num_heads``
            and optionally ``mlp_ratio``. Defaults to 'base'.
        img_size: Side, or (H, W), in pixels for which the relative-position tables of global blocks are stored; any
            other size works, with interpolated tables. Defaults to ``pretrain_img_size``.
        pretrain_img_size: Side, or (H, W), in pixels for which the position table is stored. Defaults to 224.
        patch_size: Side of a patch in pixels. Defaults to 16.
        in_channels: Channels of the image. Defaults to 3.
        window_size: Side of a window in patches; 0 makes every block global. Defaults to 0.
        global_attn_indexes: Blocks that attend globally although ``window_size`` is set. Defaults to ().
        out_indices: Blocks whose output is returned; negative values count from the end. Defaults to (-1,).
        residual_block_indexes: Blocks followed by a residual bottleneck (:class:`.blocks.ResidualBottleneck`).
            Defaults to ().
        pos_embed: 'learned' (an absolute table), 'sincos' (fixed), 'separate' (learned rows and columns), 'rotary' (in
            attention) or 'none'. Defaults to 'learned'.
        interpolate_offset: Convention of the position table, see :class:`PositionEmbedding`. Defaults to 0.0.
        interpolate_antialias: Likewise. Defaults to False.
        use_rel_pos: ViTDet's decomposed relative position in every block. Defaults to False.
        rel_pos_bias: BEiT's relative-position bias in every block. Defaults to False.
        rotary_base: Of 'rotary', see :class:`.rotary.RotaryEmbedding`. Defaults to 100.
        with_cls_token: Whether a cls token runs along (it is not part of the output). Defaults to False.
        num_register_tokens: Register tokens (arXiv:2309.16588) that run along. Defaults to 0.
        qkv_bias: Whether q, k and v have a bias. Defaults to True.
        layer_scale_init: Start of LayerScale's factors; None for no LayerScale. Defaults to None.
        mlp: 'gelu' or 'swiglu' (DINOv2-giant, DINOv3-H+); with 'swiglu' ``mlp_ratio`` counts one of its halves.
            Defaults to 'gelu'.
        drop_path_rate: Stochastic depth, rising linearly from 0 to this value at the last block. Defaults to 0.0.
        final_norm: Whether a LayerNorm stands before every output map; DINOv2's features need it. Defaults to False.
        norm_eps: Epsilon of every LayerNorm. Defaults to 1e-6.
        frozen_stages: -1 freezes nothing, 0 the patch and position embedding and extra tokens, n >= 1 the first n
            blocks too; with n equal to the depth the final norm as well. Defaults to -1.
        lora: Low-rank adaptation of the blocks behind ``frozen_stages``: ``dict(rank=8)``, optionally with ``alpha``
            (16) and ``layers`` (the linear layers of attention and MLP). Everything else in the ViT is frozen then.
            Defaults to None.
        with_cp: Whether activations are recomputed in the backward pass to save memory. Defaults to False.
        init_cfg: MMEngine's initialisation config; ``dict(type='vitdense.Pretrained', checkpoint=...)`` imports
            pre-trained weights.

    Raises:
        ValueError: An argument that does not fit, with the range that does.
    """

    def __init__(
        self,
        arch: str | Mapping[str, float] = "base",
        *,
        img_size: int | tuple[int, int] | None = None,
        pretrain_img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        window_size: int = 0,
        global_attn_indexes: Sequence[int] = (),
        out_indices: Sequence[int] = (-1,),
        residual_block_indexes: Sequence[int] = (),
        pos_embed: str = "learned",
        interpolate_offset: float = 0.0,
        interpolate_antialias: bool = False,
        use_rel_pos: bool = False,
        rel_pos_bias: bool = False,
        rotary_base: float = 100.0,
        with_cls_token: bool = False,
        num_register_tokens: int = 0,
        qkv_bias: bool = True,
        mlp: str = "gelu",
        layer_scale_init: float | None = None,
        drop_path_rate: float = 0.0,
        final_norm: bool = False,
        norm_eps: float = 1e-6,
        frozen_stages: int = -1,
        lora: Mapping[str, Any] | None = None,
        with_cp: bool = False,
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.arch = resolve_arch(arch)
        dims, depth = self.arch.embed_dims, self.arch.depth
        if window_size < 0 or num_register_tokens < 0:
            raise ValueError(f"window_size={window_size} and num_register_tokens={num_register_tokens} must be >= 0")
        if patch_size < 1 or in_channels < 1 or not norm_eps > 0 or not rotary_base > 0 or not 0 <= drop_path_rate < 1:
            raise ValueError(
                f"patch_size={patch_size}, in_channels={in_channels}, norm_eps={norm_eps} and "
                f"rotary_base={rotary_base} must be positive, and drop_path_rate={drop_path_rate} in [0, 1)"
            )
        if not isinstance(out_indices, Sequence) or not out_indices:
            raise ValueError(
                f"out_indices is {out_indices!r}; give the blocks whose maps are wanted, e.g. (-1,) for the last"
            )
        if not -1 <= frozen_stages <= depth:
            raise ValueError(f"frozen_stages={frozen_stages} must lie in -1..{depth} (the depth)")
        if mlp not in MLPS:
            raise ValueError(f"mlp='{mlp}' is unknown; choose one of {sorted(MLPS)}")
        if use_rel_pos and rel_pos_bias:
            raise ValueError("use_rel_pos (ViTDet's tables) and rel_pos_bias (BEiT's) exclude each other")
        self.patch_size = patch_size
        self.window_size = window_size
        self.global_attn_indexes = tuple(_resolve_index(i, depth, "global_attn_indexes") for i in global_attn_indexes)
        self.out_indices = tuple(_resolve_index(i, depth, "out_indices") for i in out_indices)
        residual = tuple(_resolve_index(i, depth, "residual_block_indexes") for i in residual_block_indexes)
        self.num_prefix = int(with_cls_token) + num_register_tokens
        self.frozen_stages = frozen_stages
        self.with_cp = with_cp
        self.feature_cache: FeatureCache | None = None  # set for a training by vitdense.FeatureCacheHook

        self.patch_embed = PatchEmbed(in_channels, dims, patch_size)
        table = dict(interpolate_offset=interpolate_offset, interpolate_antialias=interpolate_antialias)
        self.pos_embed = self._build_pos_embed(pos_embed, pretrain_img_size, with_cls_token, table)
        self.rotary = RotaryEmbedding(dims // self.arch.num_heads, rotary_base) if pos_embed == "rotary" else None
        img_size = pretrain_img_size if img_size is None else img_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dims)) if with_cls_token else None
        self.register_tokens = nn.Parameter(torch.zeros(1, num_register_tokens, dims)) if num_register_tokens else None
        windowed = [window_size > 0 and i not in self.global_attn_indexes for i in range(depth)]
        self.blocks = nn.ModuleList(
            Block(
                dims,
                self.arch.num_heads,
                self.arch.mlp_ratio,
                windowed=windowed[i],
                mlp=mlp,
                rel_pos=self._build_rel_pos(use_rel_pos, rel_pos_bias, windowed[i], img_size, with_cls_token),
                residual=i in residual,
                qkv_bias=qkv_bias,
                layer_scale_init=layer_scale_init,
                drop_path=drop_path_rate * i / max(depth - 1, 1),
                norm_eps=norm_eps,
            )
            for i in range(depth)
        )
        self.norm = nn.LayerNorm(dims, eps=norm_eps) if final_norm else nn.Identity()
        self.has_lora = lora is not None
        if lora is not None:
            self._add_lora(lora)
        self._init_parameters()
        self._freeze()

    def _grid(self, image_size: int | tuple[int, int]) -> tuple[int, int]:
        height, width = (image_size,) * 2 if isinstance(image_size, int) else tuple(image_size)
        if min(height, width) < 1 or height % self.patch_size or width % self.patch_size:
            raise ValueError(
                f"img_size or pretrain_img_size is {image_size}, no positive multiple of patch_size={self.patch_size}"
            )
        return height // self.patch_size, width // self.patch_size

    def _build_pos_embed(
        self, kind: str, image_size: int | tuple[int, int], with_cls_token: bool, table: dict[str, Any]
    ) -> PositionEmbedding | SinCosEmbedding | SeparateEmbedding | None:
        dims = self.arch.embed_dims
        if kind == "learned":
            return PositionEmbedding(self._grid(image_size), dims, with_cls_token=with_cls_token, **table)
        if kind == "sincos":
            return SinCosEmbedding(self._grid(image_size), dims)
        if kind == "separate":
            return SeparateEmbedding(self._grid(image_size), dims)
        if kind not in ("rotary", "none"):
            raise ValueError(
                f"pos_embed='{kind}' is unknown; choose 'learned', 'sincos', 'separate', 'rotary' or 'none'"
            )
        return None

    def _build_rel_pos(
        self, decomposed: bool, bias: bool, windowed: bool, image_size: int | tuple[int, int], with_cls_token: bool
    ) -> DecomposedRelativePosition | RelativePositionBias | None:
        if not (decomposed or bias):
            return None
        size = (self.window_size, self.window_size) if windowed else self._grid(image_size)
        if decomposed:
            return DecomposedRelativePosition(size, self.arch.embed_dims // self.arch.num_heads)
        return RelativePositionBias(size, self.arch.num_heads, with_cls_token=with_cls_token)

    def _add_lora(self, options: Mapping[str, Any]) -> None:
        layers = ("qkv", "proj", "fc1", "fc2") if isinstance(self.blocks[0].mlp, Mlp) else ("qkv", "proj", "w12", "w3")
        settings = {"alpha": 16.0, "layers": layers, **options}
        if set(settings) != {"rank", "alpha", "layers"}:
            raise ValueError(f"lora={dict(options)}; expected dict(rank=8), optionally with alpha and layers")
        if self.frozen_stages == self.arch.depth:
            raise ValueError(f"lora adapts blocks that are not frozen, but frozen_stages={self.frozen_stages} is all")
        for block in self.blocks[max(self.frozen_stages, 0) :]:
            add_lora(block, **settings)

    def _init_parameters(self) -> None:
        """Truncated normal of 0.02 for linear layers and tokens, as ViT and ViTDet do."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for token in (self.cls_token, self.register_tokens):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02)

    def init_weights(self) -> None:
        """Runs ``init_cfg`` such that imported weights come last.

        MMEngine defers only its own literal 'Pretrained'; any other entry of the list would overwrite what ours
        imported. So ours are taken out and run at the end.
        """
        declared = self.init_cfg
        entries = declared if isinstance(declared, list) else [declared] if declared else []
        for entry in entries:
            if not isinstance(entry, Mapping) or "type" not in entry:
                raise ValueError(f"init_cfg of a vitdense.ViT holds {entry!r}; expected dict(type=...)")
            if entry["type"] == "Pretrained":  # MMEngine's, which leaves out silently what does not fit
                raise ValueError("init_cfg type 'Pretrained' would load by half: use type='vitdense.Pretrained'")
        imports = [entry for entry in entries if entry["type"] == "vitdense.Pretrained"]
        self.init_cfg = [entry for entry in entries if entry not in imports]
        try:
            super().init_weights()
        finally:
            self.init_cfg = declared
        for entry in imports:
            initialize(self, entry)

    def _frozen_modules(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        modules: list[nn.Module] = [self.patch_embed, *self.blocks[: self.frozen_stages]]
        if self.pos_embed is not None:
            modules.append(self.pos_embed)
        if self.frozen_stages == self.arch.depth:
            modules.append(self.norm)
        return modules

    def _freeze(self) -> None:
        for module in self._frozen_modules():
            module.eval()
            module.requires_grad_(False)
        for token in (self.cls_token, self.register_tokens):
            if token is not None and self.frozen_stages >= 0:
                token.requires_grad = False
        if self.has_lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad = parameter.requires_grad and name.endswith((".lora_a", ".lora_b"))

    def train(self, mode: bool = True) -> ViT:
        """Like ``nn.Module.train``, but frozen parts stay in evaluation mode (no stochastic depth in them)."""
        super().train(mode)
        self._freeze()
        return self

    def layout(self, grid: tuple[int, int]) -> TokenLayout:
        """The order in which tokens of this grid (H, W) run through the blocks."""
        return TokenLayout(grid, self.window_size, self.num_prefix)

    def embed(self, image: Tensor) -> tuple[Tensor, TokenLayout]:
        """Turns an image (B, 3, H, W) into the tokens (B, P + gh * gw, C) that enter the first block, in its order."""
        patches, grid = self.patch_embed(image)
        if self.pos_embed is not None:
            patches = patches + self.pos_embed.patches(grid)
        layout = self.layout(grid)
        parts = [layout.order(patches)]
        if self.register_tokens is not None:
            parts.insert(0, self.register_tokens.expand(image.shape[0], -1, -1))
        if self.cls_token is not None:
            cls = self.cls_token if self.pos_embed is None else self.cls_token + self.pos_embed.cls()
            parts.insert(0, cls.expand(image.shape[0], -1, -1))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0], layout

    def to_map(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """Turns tokens (B, P + gh * gw, C) of a block into a map (B, C, gh, gw), normed if there is a final norm.

        It is contiguous, for operators that do not look at strides (mmcv's RoIAlign behind a neck of convolutions).
        """
        patches = layout.raster(self.norm(tokens[:, self.num_prefix :]))
        return patches.transpose(1, 2).unflatten(2, layout.grid).contiguous()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps images (B, 3, H, W) to one (B, C, ceil(H / patch), ceil(W / patch)) per entry of ``out_indices``."""
        end = max(self.out_indices) + 1
        frozen = min(self.frozen_stages, end)
        if self.feature_cache is None or frozen < 1 or not self.training:
            tokens, layout = self.embed(x)
            outputs = self._run_blocks(tokens, layout, range(end), set(self.out_indices))
        else:
            layout = self.layout(self.patch_embed.grid(x.shape))
            needed = {i for i in self.out_indices if i < frozen} | {frozen - 1}
            outputs = self.feature_cache(x, lambda images: self._run_frozen(images, frozen, needed))
            outputs |= self._run_blocks(outputs[frozen - 1], layout, range(frozen, end), set(self.out_indices))
        return tuple(self.to_map(outputs[i], layout) for i in self.out_indices)

    def _run_frozen(self, images: Tensor, frozen: int, needed: set[int]) -> dict[int, Tensor]:
        with torch.no_grad():
            tokens, layout = self.embed(images)
            return self._run_blocks(tokens, layout, range(frozen), needed)

    def _run_blocks(self, tokens: Tensor, layout: TokenLayout, blocks: range, needed: set[int]) -> dict[int, Tensor]:
        """Tokens after each block of ``needed``."""
        rotations = None if self.rotary is None else self.rotary(layout)
        outputs: dict[int, Tensor] = {}
        for i in blocks:
            if self.with_cp and self.training and i >= self.frozen_stages:
                tokens = checkpoint(self.blocks[i], tokens, layout, rotations, use_reentrant=False)
            else:
                tokens = self.blocks[i](tokens, layout, rotations)
            if i in needed:
                outputs[i] = tokens
        return outputs


def _resolve_index(index: int, depth: int, name: str) -> int:
    if not isinstance(index, Integral):
        raise ValueError(f"{name} holds {index!r}, expected whole numbers")
    if not -depth <= index < depth:
        raise ValueError(f"{name} holds {index}, but the blocks are 0..{depth - 1}")
    return index % depth
