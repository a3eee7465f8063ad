"""ViTDet's simple feature pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..registry import MODELS
from .norm import build_norm2d


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """Builds every level from one map of a plain backbone (arXiv:2203.16527, section 3; detectron2 at 02b5c4e).

    Each scale is a small resampler followed by a 1x1 and a 3x3 convolution to ``out_channels``, each with a norm and no
    activation: x4 two transposed convolutions with norm and GELU between, x2 one transposed convolution, x1 nothing,
    x0.5 max pooling. Levels beyond the scales are strided picks of the last (p6 of Mask R-CNN).

    ViTDet builds from the last map. A frozen backbone gives more from several (its ``out_indices``): with lists for
    ``in_channels`` and ``in_index`` they are concatenated and projected to the width of the last by a 1x1 convolution.

    Args:
        in_channels: Channels of the backbone's map, or a list with those of each map that is used.
        out_channels: Channels of every level. Defaults to 256.
        scales: Size of each level over the backbone's map; among 4, 2, 1 and 0.5. Defaults to (4, 2, 1, 0.5).
        num_outs: Levels in all, at least ``len(scales)``. Defaults to 5.
        in_index: Which map of the backbone's tuple is used, or a list, one for each of ``in_channels``. Defaults to -1.
        norm_cfg: Norm after each convolution; None for none, and then the convolutions have a bias. 'LN2d' is the
            channel LayerNorm with eps 1e-6. Defaults to dict(type='LN2d').
        init_cfg: MMEngine's initialisation config.

    Raises:
        ValueError: A scale that is not one of the four, too few outputs, or lists of different lengths.
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        out_channels: int = 256,
        scales: Sequence[float] = (4, 2, 1, 0.5),
        num_outs: int = 5,
        in_index: int | Sequence[int] = -1,
        norm_cfg: dict[str, Any] | None = dict(type="LN2d"),  # noqa: B006 (a config, never written to)
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if num_outs < len(scales):
            raise ValueError(f"num_outs={num_outs} is below the number of scales {tuple(scales)}")
        widths = [in_channels] if isinstance(in_channels, int) else list(in_channels)
        self.in_index = [in_index] if isinstance(in_index, int) else list(in_index)
        if len(widths) != len(self.in_index):
            raise ValueError(f"in_channels={in_channels} and in_index={in_index} must name as many maps")
        self.num_outs = num_outs
        self.fuse = None if len(widths) == 1 else _projection(sum(widths), widths[-1], norm_cfg)
        self.levels = nn.ModuleList(_level(widths[-1], out_channels, scale, norm_cfg) for scale in scales)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Maps the backbone's tuple to ``num_outs`` maps (B, out_channels, H * scale, W * scale), largest first.

        They are contiguous: mmcv's RoIAlign (2.3.6) reads the memory of a channels-last map as if it were not one, and
        gives wrong numbers without a word.
        """
        maps = [inputs[i] for i in self.in_index]
        feature = maps[0] if self.fuse is None else self.fuse(torch.cat(maps, dim=1))
        outs = [level(feature) for level in self.levels]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], kernel_size=1, stride=2))
        return tuple(out.contiguous() for out in outs)


def _level(in_channels: int, out_channels: int, scale: float, norm_cfg: dict[str, Any] | None) -> nn.Sequential:
    """One level: resampler, then 1x1 and 3x3 convolution with their norms."""
    half, quarter = in_channels // 2, in_channels // 4
    if scale == 4:
        layers = [
            nn.ConvTranspose2d(in_channels, half, kernel_size=2, stride=2),
            *_norm(norm_cfg, half),
            nn.GELU(),
            nn.ConvTranspose2d(half, quarter, kernel_size=2, stride=2),
        ]
        channels = quarter
    elif scale == 2:
        layers, channels = [nn.ConvTranspose2d(in_channels, half, kernel_size=2, stride=2)], half
    elif scale == 1:
        layers, channels = [], in_channels
    elif scale == 0.5:
        layers, channels = [nn.MaxPool2d(kernel_size=2, stride=2)], in_channels
    else:
        raise ValueError(f"scale {scale} is unknown; choose among 4, 2, 1 and 0.5")
    bias = norm_cfg is None
    return nn.Sequential(
        *layers,
        *_projection(channels, out_channels, norm_cfg),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=bias),
        *_norm(norm_cfg, out_channels),
    )


def _projection(in_channels: int, out_channels: int, norm_cfg: dict[str, Any] | None) -> nn.Sequential:
    convolution = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=norm_cfg is None)
    return nn.Sequential(convolution, *_norm(norm_cfg, out_channels))


def _norm(norm_cfg: dict[str, Any] | None, channels: int) -> list[nn.Module]:
    return [] if norm_cfg is None else [build_norm2d(norm_cfg, channels)]
