"""Layer-wise learning-rate decay for plain Vision Transformers."""

from __future__ import annotations

import re

from mmengine.logging import print_log
from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from ..models import ViT
from ..registry import OPTIM_WRAPPER_CONSTRUCTORS


def layer_factor(name: str, depth: int, decay_rate: float) -> float:
    """Factor on the learning rate of one parameter of a ViT (detectron2 at 02b5c4e, ``get_vit_lr_decay_rate``).

    ``decay_rate ** (depth + 1 - id)`` with id 0 for the patch embedding, the position embedding and the extra tokens,
    i + 1 for block i; everything else (residual bottlenecks, the final norm) has factor 1.

    Args:
        name: The parameter's name inside the ViT.
        depth: Blocks of the ViT.
        decay_rate: Factor from one layer to the one before.
    """
    if name.startswith(("patch_embed.", "pos_embed.", "cls_token", "register_tokens")):
        return float(decay_rate ** (depth + 1))
    if match := re.match(r"blocks\.(\d+)\.(?!residual\.)", name):
        return float(decay_rate ** (depth - int(match[1])))
    return 1.0


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class ViTLayerDecayOptimizerConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's default constructor with layer-wise learning-rate decay in every :class:`vitdense.models.ViT`.

    What MMEngine's ``paramwise_cfg`` knows (``custom_keys``, ``norm_decay_mult``, ...) keeps its meaning; the factor of
    the layer multiplies the rate that comes out. One constructor for MMDetection and MMSegmentation::

        optim_wrapper = dict(
            constructor='vitdense.ViTLayerDecayOptimizerConstructor',
            optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
            paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0, custom_keys={'pos_embed': dict(decay_mult=0.0)}))

    Args:
        optim_wrapper_cfg: Config of the optimizer wrapper.
        paramwise_cfg: As in MMEngine, with ``decay_rate`` in (0, 1] and optionally ``backbone_lr_mult``, a factor (1
            if it is left out) on the rate of every parameter of a ViT. A ``backbone`` among ``custom_keys`` would do
            that too, but MMEngine then skips ``norm_decay_mult`` for its norms.

    Raises:
        ValueError: No ``decay_rate``, one out of range, a ``backbone_lr_mult`` that is not positive, or no ViT in the
            model.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        paramwise_cfg = dict(paramwise_cfg or {})
        if "decay_rate" not in paramwise_cfg:
            raise ValueError(
                "paramwise_cfg of ViTLayerDecayOptimizerConstructor needs decay_rate, e.g. 0.7 for ViTDet-B"
            )
        # It stays in paramwise_cfg: MMEngine never calls add_params when that is empty.
        self.decay_rate = float(paramwise_cfg["decay_rate"])
        if not 0 < self.decay_rate <= 1:
            raise ValueError(f"decay_rate={self.decay_rate} must lie in (0, 1]")
        self.backbone_lr_mult = float(paramwise_cfg.get("backbone_lr_mult", 1.0))
        if not self.backbone_lr_mult > 0:
            raise ValueError(f"backbone_lr_mult={self.backbone_lr_mult} must be positive")
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = "", **kwargs: object) -> None:
        """Adds one group per parameter of ``module`` to ``params``; see MMEngine's constructor, which recurses here."""
        super().add_params(params, module, prefix=prefix, **kwargs)
        if prefix:
            return
        factors = self._factors(module)
        for group in params:
            (parameter,) = group["params"]
            factor = factors.get(id(parameter), 1.0)
            group["lr"] = group.get("lr", self.base_lr) * factor
        print_log(f"Layer-wise learning-rate decay {self.decay_rate} on {len(factors)} parameters.", logger="current")

    def _factors(self, model: nn.Module) -> dict[int, float]:
        vits = [module for module in model.modules() if isinstance(module, ViT)]
        if not vits:
            raise ValueError("ViTLayerDecayOptimizerConstructor found no vitdense.ViT in the model")
        return {
            id(parameter): layer_factor(name, vit.arch.depth, self.decay_rate) * self.backbone_lr_mult
            for vit in vits
            for name, parameter in vit.named_parameters()
        }
