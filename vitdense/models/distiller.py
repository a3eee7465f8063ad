"""Teaching a small ViT the features of a large one, on images without labels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from ..registry import MODELS
from .vit import ViT


@MODELS.register_module()
class FeatureDistiller(BaseModel):
    """Trains ``backbone`` to predict the last map of a frozen ``teacher`` through a linear layer.

    The loss is that of AM-RADIO (arXiv:2312.06709): 0.9 times one minus the cosine of each pair of tokens, and 0.1
    times their smooth L1 distance. A checkpoint of the training is one of the student too: a
    ``dict(type='vitdense.Pretrained', checkpoint=...)`` takes ``backbone`` out of it and reports the rest as ignored.

    Args:
        backbone: Config of the student, a :class:`.vit.ViT`.
        teacher: Config of the teacher, a ViT with the same patches, with its ``init_cfg``.
        data_preprocessor: As of any detector or segmenter.
        init_cfg: MMEngine's initialisation config.

    Raises:
        ValueError: One of the two is no ViT.
    """

    def __init__(
        self,
        backbone: dict[str, Any],
        teacher: dict[str, Any],
        data_preprocessor: dict[str, Any] | None = None,
        init_cfg: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.backbone = MODELS.build(backbone)
        self.teacher = MODELS.build(teacher).requires_grad_(False)
        if wrong := [type(part).__name__ for part in (self.backbone, self.teacher) if not isinstance(part, ViT)]:
            raise ValueError(f"FeatureDistiller teaches a vitdense.ViT the features of another, not a {wrong[0]}")
        self.projection = nn.Linear(self.backbone.arch.embed_dims, self.teacher.arch.embed_dims)

    def train(self, mode: bool = True) -> FeatureDistiller:
        """Like ``nn.Module.train``; the teacher stays in evaluation mode."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(
        self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor"
    ) -> dict[str, Tensor] | tuple[Tensor, Tensor]:
        """Losses for images (B, 3, H, W) with ``mode='loss'``, else tokens (B, N, C) of the student and the teacher.

        Raises:
            ValueError: The two have other numbers of patches.
        """
        with torch.no_grad():
            wanted = self.teacher(inputs)[-1]
        found = self.backbone(inputs)[-1]
        if found.shape[-2:] != wanted.shape[-2:]:
            raise ValueError(
                f"the student's map is {tuple(found.shape[-2:])}, the teacher's {tuple(wanted.shape[-2:])}: give both "
                "the same patch_size"
            )
        target = wanted.flatten(2).transpose(1, 2)
        predicted = self.projection(found.flatten(2).transpose(1, 2))
        if mode != "loss":
            return predicted, target
        return {
            "loss_cosine": 0.9 * (1 - F.cosine_similarity(predicted, target, dim=-1)).mean(),
            "loss_smooth_l1": 0.1 * F.smooth_l1_loss(predicted, target),
        }
