"""Normalisation layers of the neck and the heads."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import MODELS

EPS = 1e-6  # ViTDet uses 1e-6 in every LayerNorm; torch's and MMCV's defaults are 1e-5.


@MODELS.register_module()
class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of a map, at each pixel.

    In a head of MMDetection write ``norm_cfg=dict(type='vitdense.LayerNorm2d', eps=1e-6)``: MMCV's builder fills in
    1e-5 when the config names no eps. Written on ``layer_norm`` so that it exports as one LayerNormalization node
    (decomposed, its square overflows in FP16).

    Args:
        num_channels: Channels of the map.
        eps: Added to the variance. Defaults to 1e-6.
    """

    _abbr_ = "ln"  # name that MMCV gives the layer inside a ConvModule

    def __init__(self, num_channels: int, eps: float = EPS) -> None:
        super().__init__(num_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, C, H, W) to (B, C, H, W)."""
        x = x.permute(0, 2, 3, 1)
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


def build_norm2d(norm_cfg: dict[str, Any], num_channels: int) -> nn.Module:
    """Builds a norm for a (B, C, H, W) map from an OpenMMLab ``norm_cfg``.

    Args:
        norm_cfg: ``type`` is 'LN2d' (ours), 'BN', 'SyncBN' or 'GN'; the rest goes to the layer, except
            ``requires_grad`` (default True).
        num_channels: Channels of the map.

    Raises:
        ValueError: Unknown type.
    """
    cfg = dict(norm_cfg)
    kind, requires_grad = cfg.pop("type", None), cfg.pop("requires_grad", True)
    if kind in ("LN2d", "vitdense.LayerNorm2d"):
        norm: nn.Module = LayerNorm2d(num_channels, **cfg)
    elif kind == "BN":
        norm = nn.BatchNorm2d(num_channels, **cfg)
    elif kind == "SyncBN":
        norm = nn.SyncBatchNorm(num_channels, **cfg)
    elif kind == "GN":
        norm = nn.GroupNorm(num_channels=num_channels, **cfg)
    else:
        raise ValueError(f"norm_cfg type {kind!r} is unknown here; choose 'LN2d', 'BN', 'SyncBN' or 'GN'")
    for parameter in norm.parameters():
        parameter.requires_grad = requires_grad
    return norm
