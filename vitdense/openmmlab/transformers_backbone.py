"""Backbones of transformers inside detectors and segmenters, for comparisons with the same heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.model import BaseModule
from torch import Tensor

from ..registry import MODELS


@MODELS.register_module()
class TransformersBackbone(BaseModule):
    """A backbone of transformers (ConvNeXt, Swin, PVTv2, Dinov2, ...), through its backbone API.

    Nothing is downloaded: ``pretrained`` is a folder with config.json and model.safetensors. Without it the weights are
    random.

    Args:
        model_type: transformers' name of the family, e.g. 'convnext', 'swin', 'pvt_v2'; taken from ``pretrained`` if
            that is given. Defaults to None.
        config: Fields of the family's config, e.g. ``dict(depths=[3, 3, 9, 3])``. Defaults to {}.
        pretrained: Folder of a model. Defaults to None.
        out_indices: Stages whose maps are returned; 0 is the stem. Defaults to (1, 2, 3, 4).
        frozen: Whether all weights are frozen. Defaults to False.

    Raises:
        ImportError: transformers is not installed.
        ValueError: An unknown family, one without a backbone, or no such folder.
    """

    def __init__(
        self,
        model_type: str | None = None,
        *,
        config: dict[str, Any] | None = None,
        pretrained: str | None = None,
        out_indices: Sequence[int] = (1, 2, 3, 4),
        frozen: bool = False,
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        try:
            from transformers import AutoBackbone, AutoConfig
        except ImportError as error:
            raise ImportError("vitdense.TransformersBackbone needs transformers: pip install transformers") from error
        if (model_type is None) == (pretrained is None):
            raise ValueError("give either model_type (random weights) or pretrained (a folder), not both or none")
        if pretrained is not None and config:
            raise ValueError(f"the config of {pretrained} belongs to its weights; leave {sorted(config)} out")
        if not out_indices:
            raise ValueError("out_indices is empty; give the stages whose maps are wanted, e.g. (1, 2, 3, 4)")
        fields = {**(config or {}), "out_indices": list(out_indices)}
        try:
            if pretrained is None:
                if unknown := sorted(set(config or {}) - set(vars(AutoConfig.for_model(model_type)))):
                    raise ValueError(f"its config has no {unknown}")
                self.model = AutoBackbone.from_config(AutoConfig.for_model(model_type, **fields))
            else:
                if not Path(pretrained).is_dir():
                    raise ValueError("there is no such folder")
                found = AutoConfig.from_pretrained(pretrained, local_files_only=True, **fields)
                # AutoBackbone.from_pretrained asks the hub for a folder's timm settings: the class itself does not.
                backbone = type(AutoBackbone.from_config(found))
                self.model, loading = backbone.from_pretrained(
                    pretrained, config=found, local_files_only=True, use_safetensors=True, output_loading_info=True
                )
                if wrong := sorted(map(str, [*loading["missing_keys"], *loading["mismatched_keys"]])):
                    raise ValueError(f"weights are missing or of another shape: {', '.join(wrong[:8])}")
        except Exception as error:  # noqa: BLE001 (families, hub and safetensors raise errors of their own)
            raise ValueError(f"transformers has no backbone for {model_type or pretrained!r} so: {error}") from error
        self.out_channels = tuple(self.model.channels)
        self.frozen = frozen
        if frozen:
            self.model.requires_grad_(False)

    def train(self, mode: bool = True) -> TransformersBackbone:
        """Like ``nn.Module.train``, but a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps images (B, 3, H, W) to one map (B, C, h, w) per entry of ``out_indices``."""
        return tuple(self.model(x).feature_maps)
