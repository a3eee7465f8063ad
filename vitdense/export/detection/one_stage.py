"""One-stage detectors of MMDetection as static graphs: dense predictions to a fixed number of boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .boxes import check_coder, clip_boxes, delta_to_box, distance_to_box
from .candidates import Candidates, Detections, Limits, best_of_level, detect, rows, take


class DenseHead(nn.Module):
    """A dense head of MMDetection from feature maps to detections, with its priors as constants.

    Args:
        head: RetinaHead, ATSSHead, GFLHead, RTMDetHead, RTMDetSepBNHead or RTMDetInsSepBNHead, trained.
        sizes: (H, W) of each level.
        limits: Of the graph.

    Raises:
        ValueError: Another head, or one whose class scores are not sigmoids.
    """

    def __init__(self, head: Any, sizes: Sequence[tuple[int, int]], limits: Limits) -> None:
        super().__init__()
        self.head: Any = head
        self.kind = type(head).__name__
        self.limits = limits
        self.decode = _decoder(head)
        if not getattr(head, "use_sigmoid_cls", True):
            raise ValueError(f"{type(head).__name__} scores classes by a softmax; only sigmoid scores can be exported")
        with_stride = self.kind.startswith("RTMDet")
        options = dict(with_stride=True) if with_stride else {}
        priors = head.prior_generator.grid_priors(list(sizes), device="cpu", **options)
        self.strides = [float(stride[0]) for stride in head.prior_generator.strides]
        for i, level in enumerate(priors):
            self.register_buffer(f"priors_{i}", level.detach().clone()[None], persistent=False)

    def forward(self, features: Sequence[Tensor], size: Tensor) -> tuple[Detections, Tensor | None]:
        """Detections of feature maps, and the maps that masks are made from, where the head makes masks.

        ``extra`` of the detections holds kernels and priors (B, N, P + 4) then. Boxes are cut to ``size`` (B, 2), the
        heights and widths of the images.
        """
        scores, boxes, *others = self.head(features)
        factors = others[0] if others and self.kind == "ATSSHead" else None
        kernels, mask_features = others if self.kind.startswith("RTMDetIns") else (None, None)
        levels = []
        for i in range(len(scores)):
            classes = rows(scores[i], self.head.cls_out_channels).sigmoid()
            score, place, label = best_of_level(classes, self.limits.score_threshold, self.limits.per_level)
            if factors is not None:
                score = score * take(rows(factors[i], 1).sigmoid(), place)[..., 0]
            prior = take(self.get_buffer(f"priors_{i}").expand(score.shape[0], -1, -1), place)
            predicted = take(rows(boxes[i], boxes[i].shape[1] // self._priors_per_place(i, boxes[i])), place)
            extra = score[..., None][..., :0]
            if kernels is not None:
                extra = torch.cat([take(rows(kernels[i], kernels[i].shape[1]), place), prior], dim=-1)
            box = clip_boxes(self.decode(prior, predicted, self.strides[i]), size)
            levels.append(Candidates(box, score, label, extra))
        joined = Candidates(*(torch.cat(parts, dim=1) for parts in zip(*levels, strict=True)))
        return detect(joined, self.limits), mask_features

    def _priors_per_place(self, level: int, boxes: Tensor) -> int:
        return int(self.get_buffer(f"priors_{level}").shape[1]) // int(boxes.shape[2] * boxes.shape[3])


HEADS = (
    "RetinaHead",
    "ATSSHead",
    "GFLHead",
    "RTMDetHead",
    "RTMDetSepBNHead",
    "RTMDetInsHead",
    "RTMDetInsSepBNHead",
)
Decoder = Callable[[Tensor, Tensor, float], Tensor]


def _decoder(head: Any) -> Decoder:
    """How a head's predictions become boxes: (priors (B, N, 2 or 4), predictions (B, N, D), stride) to (B, N, 4)."""
    kind = type(head).__name__
    if kind not in HEADS:  # a subclass may decode in another way
        raise ValueError(f"a {kind} cannot be exported yet; {', '.join(HEADS)} can")
    if kind == "GFLHead":
        bins = head.reg_max + 1

        def from_distribution(priors: Tensor, predicted: Tensor, stride: float) -> Tensor:
            weights = predicted.unflatten(-1, (4, bins)).softmax(dim=-1)
            distances = weights @ head.integral.project[:, None]
            centers = (priors[..., :2] + priors[..., 2:]) / 2
            return distance_to_box(centers, distances[..., 0] * stride)

        return from_distribution
    if kind.startswith("RTMDet"):
        return lambda priors, predicted, stride: distance_to_box(priors[..., :2], predicted)
    coder = head.bbox_coder
    check_coder(coder)
    return lambda priors, predicted, stride: delta_to_box(priors, predicted, coder.means, coder.stds)


def dynamic_masks(features: Tensor, extra: Tensor, head: Any, coordinates: Tensor) -> Tensor:
    """Mask logits of RTMDet-Ins: per detection three 1 x 1 convolutions whose weights it predicted.

    Args:
        features: (B, prototypes, h, w).
        extra: (B, N, P + 4): the weights, and the prior with its stride.
        head: The RTMDetInsHead.
        coordinates: (h * w, 2), positions of the features in pixels of the input.

    Returns:
        (B, N, h, w).
    """
    batch, number = extra.shape[:2]
    height, width = features.shape[-2:]
    kernels, priors = extra[..., :-4], extra[..., -4:]
    # Places that are not filled have a stride of 0; their masks are cut off with them.
    scale = priors[..., 2:3].clamp(min=1) * 8
    relative = (priors[..., :2, None] - coordinates.T[None, None]) / scale[..., None]  # (B, N, 2, cells)
    values = torch.cat([relative, features.flatten(2)[:, None].expand(-1, number, -1, -1)], dim=2)
    weights = torch.split(kernels, head.weight_nums + head.bias_nums, dim=-1)
    layers = len(head.weight_nums)
    for i in range(layers):
        weight = weights[i].unflatten(-1, (-1, values.shape[2]))
        values = weight @ values + weights[layers + i][..., None]
        values = F.relu(values) if i < layers - 1 else values
    return values.reshape(batch, number, height, width)
