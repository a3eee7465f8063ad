"""Choosing a fixed number of scored boxes, before and after suppression."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from .nms import suppress

CANDIDATES = 1500
ROUNDS = 32  # a row of as many boxes in a block, each suppressing the next, is still resolved
TOPK_LIMIT = 3840  # TensorRT's TopK takes fewer than this


@dataclass(frozen=True)
class Limits:
    """Sizes and thresholds of a detector's static graph.

    Args:
        score_threshold: Scores up to it are dropped.
        iou_threshold: Of the suppression.
        per_level: Scores that are kept of each level, MMDetection's ``nms_pre``.
        candidates: Boxes that reach the suppression, of all levels together.
        detections: Boxes that leave the graph, MMDetection's ``max_per_img``.
        rounds: Of the suppression, see :func:`.nms.suppress`.
        min_size: Boxes whose width or height is not above it are dropped; negative keeps all.

    Raises:
        ValueError: A number out of range.
    """

    score_threshold: float
    iou_threshold: float
    per_level: int = 1000
    candidates: int = CANDIDATES
    detections: int = 100
    rounds: int = ROUNDS
    min_size: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and not 1 <= value < TOPK_LIMIT:
                raise ValueError(
                    f"{field.name}={value} must lie in 1..{TOPK_LIMIT - 1}, which every runtime can sort: nms_pre and "
                    "max_per_img of test_cfg, --nms-candidates and --nms-rounds decide it"
                )


class Candidates(NamedTuple):
    """Scored boxes of an image, a fixed number of them.

    Args:
        boxes: (B, N, 4), x1 y1 x2 y2 in pixels of the input.
        scores: (B, N); 0 for places that are not filled.
        labels: (B, N), int64.
        extra: (B, N, D), what else belongs to a box; D may be 0.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    extra: Tensor


class Detections(NamedTuple):
    """What leaves the graph.

    Args:
        candidates: By falling score; behind ``number`` everything is 0.
        number: (B,), int64, boxes that are real.
        converged: (B,), 1.0 where the suppression reached its end.
        overflow: (B,), int64, boxes above the threshold that ``Limits.candidates`` left no place for although there was
            room among the detections.
    """

    candidates: Candidates
    number: Tensor
    converged: Tensor
    overflow: Tensor


def best_of_level(scores: Tensor, threshold: float, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ``number`` best scores of a level, over places and classes.

    Args:
        scores: (B, places, classes) between 0 and 1.
        threshold: Scores up to it become 0.
        number: At most; a level with fewer gives all.

    Returns:
        Scores, places and labels, (B, K) each, by falling score.
    """
    classes = scores.shape[2]
    values, index = torch.topk(scores.flatten(1), min(number, scores.shape[1] * classes))
    # Exporters divide whole numbers as float32, which is off by one beyond 2 ** 24: put right by the remainder.
    places = torch.div(index, classes, rounding_mode="floor")
    rest = index - places * classes
    places = places + (rest >= classes).to(index.dtype) - (rest < 0).to(index.dtype)
    return values * (values > threshold).to(values.dtype), places, index - places * classes


def rows(maps: Tensor, width: int) -> Tensor:
    """(B, A * width, H, W) to (B, H * W * A, width), the order of MMDetection's priors."""
    return maps.permute(0, 2, 3, 1).reshape(maps.shape[0], -1, width)


def take(values: Tensor, places: Tensor) -> Tensor:
    """Rows ``places`` (B, K) of ``values`` (B, N, D), as (B, K, D)."""
    return torch.gather(values, 1, places[..., None].expand(-1, -1, values.shape[-1]))


def without_small(boxes: Tensor, scores: Tensor, min_size: float) -> Tensor:
    """Scores (B, N) of boxes (B, N, 4), 0 where a side is not above ``min_size``; a negative one keeps all."""
    if min_size < 0:
        return scores
    width, height = (boxes[..., axis + 2] - boxes[..., axis] for axis in (0, 1))
    return scores * ((width > min_size) & (height > min_size)).to(scores.dtype)


def detect(found: Candidates, limits: Limits) -> Detections:
    """Suppresses overlapping boxes of the same label and keeps the best of the rest."""
    scores = without_small(found.boxes, found.scores, limits.min_size)
    real = (scores > 0).sum(dim=1)
    number = min(limits.candidates, scores.shape[1])
    best = _sorted(found._replace(scores=scores), number)
    kept = suppress(best.boxes, best.labels, limits.iou_threshold, limits.rounds)
    remaining = best._replace(scores=best.scores * kept.mask)
    final = _sorted(remaining, min(limits.detections, number))
    filled = (final.scores > 0).to(final.scores.dtype)
    final = Candidates(
        final.boxes * filled[..., None],
        final.scores,
        final.labels * filled.to(torch.int64),
        final.extra * filled[..., None],
    )
    # Boxes of a lower score than all that were looked at matter only where places are left.
    full = filled.sum(dim=1) >= min(limits.detections, number)
    overflow = (real - number).clamp(min=0) * (~full).to(torch.int64)
    return Detections(final, filled.sum(dim=1).to(torch.int64), kept.converged, overflow)


def _sorted(found: Candidates, number: int) -> Candidates:
    scores, order = torch.topk(found.scores, number)
    labels = torch.gather(found.labels, 1, order)
    return Candidates(take(found.boxes, order), scores, labels, take(found.extra, order))
