"""The federated loss that LVIS needs and MMDetection lacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import MODELS


@MODELS.register_module()
class FederatedLoss(nn.Module):
    """Sigmoid cross-entropy over the classes that occur in the batch and some that do not (arXiv:2103.07461).

    LVIS labels only some classes of each image exhaustively, so that an unlabelled object is no evidence against the
    other classes: a class that no box of the batch has counts as negative only if it is drawn, with a probability that
    grows with its frequency (detectron2 at 02b5c4e, ``FastRCNNOutputLayers``, ``use_fed_loss``). For a box head of
    MMDetection, which then predicts sigmoids of ``num_classes + 1`` channels of which the last is unused.

    Args:
        num_classes: Classes without background.
        image_counts: Images of the training set that hold each class.
        ann_file: Instead of these, an LVIS annotation file, whose categories say ``image_count``; read when the first
            loss is computed.
        num_federated: Classes that are used at least. Defaults to 50.
        frequency_power: Probability of a class is proportional to its count to this power. Defaults to 0.5.
        loss_weight: Factor on the loss. Defaults to 1.0.

    Raises:
        ValueError: Neither or both of counts and file, or numbers that do not fit ``num_classes``.
    """

    # What MMDetection's box head asks a loss that is not a softmax.
    custom_cls_channels = True
    custom_activation = True
    custom_accuracy = True

    def __init__(
        self,
        num_classes: int,
        image_counts: Sequence[float] | None = None,
        ann_file: str | None = None,
        num_federated: int = 50,
        frequency_power: float = 0.5,
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if (image_counts is None) == (ann_file is None):
            raise ValueError("FederatedLoss takes either image_counts, a number per class, or the ann_file of LVIS")
        if not 1 <= num_federated <= num_classes:
            raise ValueError(f"num_federated={num_federated} must lie in 1..{num_classes} (num_classes)")
        self.num_classes = num_classes
        self.ann_file = ann_file
        self.num_federated = num_federated
        self.frequency_power = frequency_power
        self.loss_weight = loss_weight
        self._probability = None if image_counts is None else self._to_probability(image_counts)

    def _to_probability(self, counts: Sequence[float]) -> Tensor:
        weights = torch.as_tensor(counts, dtype=torch.float32)
        if weights.shape != (self.num_classes,) or not (weights >= 0).all() or not weights.any():
            raise ValueError(
                f"image_counts must be {self.num_classes} numbers >= 0 (num_classes), not all 0; got {len(counts)}"
            )
        return weights**self.frequency_power

    @property
    def probability(self) -> Tensor:
        """How likely each class is drawn as a negative, up to a factor: (num_classes,)."""
        if self._probability is None:
            assert self.ann_file is not None
            categories = json.loads(Path(self.ann_file).read_bytes())["categories"]
            if missing := [item["id"] for item in categories if "image_count" not in item]:
                raise ValueError(f"{self.ann_file}: categories {missing[:5]} have no image_count, so it is not LVIS's")
            self._probability = self._to_probability(
                [item["image_count"] for item in sorted(categories, key=lambda item: item["id"])]
            )
        return self._probability

    def federated_classes(self, labels: Tensor) -> Tensor:
        """The classes that count: all that occur in ``labels``, and drawn ones up to ``num_federated``.

        Background, where it occurs, takes one of the places, as in detectron2.

        Args:
            labels: (N,), ``num_classes`` for background.
        """
        occurring = labels.unique()
        present = occurring[occurring < self.num_classes]
        more = self.num_federated - len(occurring)
        if more <= 0:
            return present
        probability = self.probability.to(labels.device, torch.float32).clone()
        probability[present] = 0
        more = min(more, int((probability > 0).sum()))
        drawn = torch.multinomial(probability, more) if more else present[:0]
        return torch.cat([present, drawn])

    def forward(
        self,
        cls_score: Tensor,
        labels: Tensor,
        label_weights: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Loss of scores (N, num_classes + 1), summed over the classes that count and averaged over the boxes.

        Args:
            cls_score: Logits; the last column is unused.
            labels: (N,), ``num_classes`` for background.
            label_weights: (N,). Defaults to None, all 1.
            avg_factor: What the sum is divided by. Defaults to N.
            reduction_override: Of MMDetection; only None and 'mean' are known.
        """
        if reduction_override not in (None, "mean"):
            raise ValueError(f"reduction_override='{reduction_override}' is unknown to FederatedLoss; it averages")
        classes = self.federated_classes(labels)
        targets = F.one_hot(labels, self.num_classes + 1)[:, classes].to(cls_score.dtype)
        losses = F.binary_cross_entropy_with_logits(cls_score[:, classes], targets, reduction="none").sum(dim=1)
        if label_weights is not None:
            losses = losses * label_weights
        return self.loss_weight * losses.sum() / (len(labels) if avg_factor is None else avg_factor)

    def get_cls_channels(self, num_classes: int) -> int:
        """Channels of the classifier: one per class, and one for background that is kept for the layout's sake."""
        if num_classes != self.num_classes:
            raise ValueError(f"the head has num_classes={num_classes}, its FederatedLoss {self.num_classes}")
        return num_classes + 1

    def get_activation(self, cls_score: Tensor) -> Tensor:
        """Scores (N, num_classes + 1) of logits; MMDetection drops the last column."""
        return cls_score.sigmoid()

    def get_accuracy(self, cls_score: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Share of the boxes with an object whose class scores highest, in percent."""
        objects = labels < self.num_classes
        right = cls_score[objects, :-1].argmax(dim=1) == labels[objects]
        return {"acc_classes": 100 * right.float().mean() if objects.any() else cls_score.new_tensor(100.0)}
