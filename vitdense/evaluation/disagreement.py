"""How far a prediction moved, finer than a score: on a few images no AP changes, but every box does a little."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from deploy.detections import Detections, box_iou, mask_iou
from deploy.predictor import Prediction

_SAME_OBJECT = 0.5


def disagreement(before: Iterable[Prediction], after: Iterable[Prediction]) -> float:
    """Share of the predictions of some images that changed: 0 where nothing did, about 1 where nothing is left.

    Of a segmenter it is the share of pixels with another class. Of a detector it is the score that is lost or new, and
    that of an object that stayed times what its box (or mask) lost in overlap, over the scores of all objects before.

    Args:
        before: Of the images.
        after: Of the same images in the same order.

    Raises:
        ValueError: They are neither segmentations nor detections.
    """
    changed = total = 0.0
    for first, second in zip(before, after, strict=True):
        if first.class_map is not None and second.class_map is not None:
            changed += float((first.class_map != second.class_map).sum())
            total += first.class_map.size
        elif first.detections is not None and second.detections is not None:
            changed += _changed_score(first.detections, second.detections)
            total += float(first.detections.scores.sum())
        else:
            raise ValueError("features have no objects or classes that could change")
    return changed / total if total else float(changed > 0)


def _changed_score(before: Detections, after: Detections) -> float:
    overlaps = box_iou(before.boxes, after.boxes)
    overlaps[before.labels[:, None] != after.labels[None]] = 0
    free = np.ones(len(after), dtype=bool)
    changed = 0.0
    for row in np.argsort(-before.scores, kind="stable"):
        score = float(before.scores[row])
        candidates = np.where(free, overlaps[row], 0)
        best = int(candidates.argmax()) if candidates.size else -1
        if best < 0 or candidates[best] < _SAME_OBJECT:
            changed += score
            continue
        free[best] = False
        overlap = float(candidates[best])
        if before.masks is not None and after.masks is not None:
            overlap = min(overlap, mask_iou(before.masks[row], after.masks[best]))
        changed += score * (1 - overlap) + abs(score - float(after.scores[best]))
    return changed + float(after.scores[free].sum())
