"""How a detector does at the score threshold it will be deployed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmdet.evaluation.functional.bbox_overlaps import bbox_overlaps
from mmdet.evaluation.functional.mean_ap import tpfp_default
from mmengine.evaluator import BaseMetric

from ..registry import METRICS


@METRICS.register_module()
class OperatingPointMetric(BaseMetric):
    """Precision, recall and F1 of boxes at one score threshold, over all classes.

    AP averages over all thresholds; a device runs at one. A detection matches if the ground truth of its class that it
    overlaps most has an IoU of at least ``iou_thr`` and no detection of a higher score took it (PASCAL VOC's rule, in
    MMDetection's implementation). A detection that matches nothing and lies in a crowd region by at least ``iou_thr``
    of its own area, COCO's rule for crowds, counts neither way.

    The test pipeline has to load annotations after its resize, so that boxes are those of the original image.

    Args:
        score_thr: Detections with a lower score are left out. Defaults to 0.3.
        iou_thr: Overlap that a match needs. Defaults to 0.5.
        collect_device: Of MMEngine's metrics. Defaults to 'cpu'.
        prefix: Likewise. Defaults to 'at_threshold'.

    Raises:
        ValueError: A threshold outside of (0, 1].
    """

    default_prefix = "at_threshold"

    def __init__(
        self, score_thr: float = 0.3, iou_thr: float = 0.5, collect_device: str = "cpu", prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        if not (0 < score_thr <= 1 and 0 < iou_thr <= 1):
            raise ValueError(f"score_thr={score_thr} and iou_thr={iou_thr} must lie in (0, 1]")
        self.score_thr, self.iou_thr = score_thr, iou_thr

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Counts detections, matches and ground truths of each image."""
        for sample in data_samples:
            if "gt_instances" not in sample:
                raise ValueError("OperatingPointMetric needs LoadAnnotations in the test pipeline, after Resize")
            found, truth, ignored = (
                {key: np.asarray(value.cpu() if hasattr(value, "cpu") else value) for key, value in _boxes(part)}
                for part in (sample["pred_instances"], sample["gt_instances"], sample["ignored_instances"])
            )
            kept = found["scores"] >= self.score_thr
            counts = np.zeros(3, dtype=np.int64)  # detections, matched, ground truths
            for label in {*found["labels"][kept].tolist(), *truth["labels"].tolist()}:
                chosen = kept & (found["labels"] == label)
                boxes = np.hstack([found["bboxes"][chosen], found["scores"][chosen, None]])
                real = truth["bboxes"][truth["labels"] == label]
                crowd = ignored["bboxes"][ignored["labels"] == label]
                matched = tpfp_default(boxes, real, np.zeros((0, 4)), self.iou_thr)[0][0] > 0
                in_crowd = (bbox_overlaps(boxes[:, :4], crowd, mode="iof") >= self.iou_thr).any(axis=1)
                counts += [int((matched | ~in_crowd).sum()), int(matched.sum()), len(real)]
            self.results.append(counts)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """Sums up the images."""
        detections, matched, truths = (int(count) for count in np.sum(results, axis=0))
        return {
            "detections": detections,
            "matched": matched,
            "ground_truths": truths,
            "precision": matched / max(detections, 1),
            "recall": matched / max(truths, 1),
            "f1": 2 * matched / max(detections + truths, 1),
        }


def _boxes(instances: Any) -> list[tuple[str, Any]]:
    keys = [key for key in ("bboxes", "labels", "scores") if key in instances]
    values = [(key, instances[key]) for key in keys]
    return [(key, getattr(value, "tensor", value)) for key, value in values]  # the pipeline packs HorizontalBoxes
