"""Two-stage detectors of MMDetection as static graphs: proposals, box stages, masks, all of a fixed number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .boxes import check_coder, clip_boxes, delta_to_box
from .candidates import Candidates, Detections, Limits, best_of_level, detect, rows, take, without_small
from .nms import suppress
from .roi_align import pyramid_roi_align


class Proposals(nn.Module):
    """An RPNHead from feature maps to a fixed number of boxes, with its anchors as constants.

    Args:
        head: The trained head.
        sizes: (H, W) of each level.
        limits: ``per_level`` scores of each level are suppressed among themselves; ``detections`` of all stay.

    Raises:
        ValueError: Objectness that is no sigmoid, or another box coder.
    """

    def __init__(self, head: Any, sizes: Sequence[tuple[int, int]], limits: Limits) -> None:
        super().__init__()
        if type(head).__name__ != "RPNHead" or not head.use_sigmoid_cls:
            raise ValueError(f"a {type(head).__name__} cannot be exported; an RPNHead with a sigmoid can")
        check_coder(head.bbox_coder)
        self.head: Any = head
        self.limits = limits
        for i, level in enumerate(head.prior_generator.grid_priors(list(sizes), device="cpu")):
            self.register_buffer(f"anchors_{i}", level.detach().clone()[None], persistent=False)

    def forward(self, features: Sequence[Tensor], size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (B, N, 4), their objectness (B, N), 0 where there is none, and convergence (B,).

        Boxes are cut to ``size`` (B, 2), the heights and widths of the images.
        """
        scores, deltas = self.head(features)
        coder = self.head.bbox_coder
        found, converged = [], []
        for i in range(len(scores)):
            score, place, label = best_of_level(rows(scores[i], 1).sigmoid(), -1.0, self.limits.per_level)
            anchor = take(self.get_buffer(f"anchors_{i}").expand(score.shape[0], -1, -1), place)
            box = delta_to_box(anchor, take(rows(deltas[i], 4), place), coder.means, coder.stds)
            box = clip_boxes(box, size)
            score = without_small(box, score, self.limits.min_size)
            # A box that is dropped must not suppress: it moves behind the others, as it has no score.
            score, order = torch.topk(score, score.shape[1])
            box = take(box, order)
            kept = suppress(box, None, self.limits.iou_threshold, self.limits.rounds)
            found.append((box, score * kept.mask))
            converged.append(kept.converged)
        boxes, objectness = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        best, order = torch.topk(objectness, min(self.limits.detections, objectness.shape[1]))
        return take(boxes, order), best, torch.stack(converged).amin(dim=0)


class BoxAndMaskHead(nn.Module):
    """StandardRoIHead, CascadeRoIHead or vitdense.CascadeRoIHead for a fixed number of proposals.

    Args:
        head: The trained RoI head.
        limits: Of the last suppression.

    Raises:
        ValueError: A part that has no static form here; it is named.
    """

    def __init__(self, head: Any, limits: Limits) -> None:
        super().__init__()
        if type(head).__name__ not in ("StandardRoIHead", "CascadeRoIHead"):
            raise ValueError(f"a {type(head).__name__} cannot be exported; StandardRoIHead and CascadeRoIHead can")
        if getattr(head, "with_shared_head", False):
            raise ValueError("a shared head between RoI features and box head cannot be exported")
        self.head: Any = head
        self.limits = limits
        cascade = isinstance(head.bbox_head, nn.ModuleList)
        self.stages = list(head.bbox_head) if cascade else [head.bbox_head]
        self.extractors = list(head.bbox_roi_extractor) if cascade else [head.bbox_roi_extractor]
        # MMDetection averages the logits of the stages, detectron2 (vitdense.CascadeRoIHead) their probabilities.
        self.average_logits = cascade and type(head).__module__.startswith("mmdet.")
        self.masks: Any = head.mask_head if head.with_mask else None
        if isinstance(self.masks, nn.ModuleList):
            raise ValueError("several mask heads (one per stage) cannot be exported; use vitdense.CascadeRoIHead")
        if self.masks is not None and type(self.masks).__name__ != "FCNMaskHead":
            raise ValueError(f"a {type(self.masks).__name__} cannot be exported; an FCNMaskHead can")
        for stage in self.stages:
            check_coder(stage.bbox_coder)
        for extractor in [*self.extractors, *([head.mask_roi_extractor] if self.masks is not None else [])]:
            _check_extractor(extractor)

    def forward(
        self, features: Sequence[Tensor], proposals: Tensor, objectness: Tensor, size: Tensor
    ) -> tuple[Detections, Any]:
        """Detections, and (B, N, h, w) mask probabilities of each, or None.

        Args:
            features: Levels (B, C, H, W).
            proposals: (B, N, 4).
            objectness: (B, N), 0 where there is no proposal.
            size: (B, 2), heights and widths of the images, which boxes are cut to.
        """
        boxes, all_scores, deltas = proposals, [], proposals
        for i, stage in enumerate(self.stages):
            logits, deltas = self._stage(features, boxes, i)
            all_scores.append(logits if self.average_logits else self._activation(stage, logits))
            if i < len(self.stages) - 1:
                chosen = self._of_class(stage, deltas, logits[..., :-1].argmax(dim=-1))
                boxes = _decoded(stage, boxes, chosen, size)
        last = self.stages[-1]
        mean = torch.stack(all_scores).mean(dim=0)
        scores = (self._activation(last, mean) if self.average_logits else mean)[..., :-1]
        scores = scores * (objectness > 0).to(scores.dtype)[..., None]
        score, place, label = best_of_level(scores, self.limits.score_threshold, self.limits.candidates)
        chosen = self._of_class(last, take(deltas, place), label)
        box = _decoded(last, take(boxes, place), chosen, size)
        found = detect(Candidates(box, score, label, score[..., None][..., :0]), self.limits)
        over = (scores > self.limits.score_threshold).flatten(1).sum(dim=1) - score.shape[1]
        room = found.number < found.candidates.scores.shape[1]
        found = found._replace(overflow=over.clamp(min=0) * room.to(torch.int64))
        return found, None if self.masks is None else self._masks(features, found)

    def _stage(self, features: Sequence[Tensor], boxes: Tensor, stage: int) -> tuple[Tensor, Tensor]:
        regions = _extract(self.extractors[stage], features, boxes)
        logits, deltas = self.stages[stage](regions)
        return logits.unflatten(0, boxes.shape[:2]), deltas.unflatten(0, boxes.shape[:2])

    def _masks(self, features: Sequence[Tensor], found: Detections) -> Tensor:
        boxes, labels = found.candidates.boxes, found.candidates.labels
        logits = self.masks(_extract(self.head.mask_roi_extractor, features, boxes))
        if logits.shape[1] > 1:
            place = labels.reshape(-1, 1, 1, 1).expand(-1, 1, *logits.shape[2:])
            logits = torch.gather(logits, 1, place)
        filled = (found.candidates.scores > 0).to(logits.dtype)
        masks: Tensor = logits[:, 0].sigmoid().unflatten(0, boxes.shape[:2]) * filled[..., None, None]
        return masks

    @staticmethod
    def _activation(stage: Any, logits: Tensor) -> Tensor:
        if not stage.custom_activation:
            return logits.softmax(dim=-1)
        probabilities: Tensor = stage.loss_cls.get_activation(logits.flatten(0, 1)).unflatten(0, logits.shape[:2])
        return probabilities

    @staticmethod
    def _of_class(stage: Any, deltas: Tensor, label: Tensor) -> Tensor:
        """The deltas (B, N, 4) of each box's class."""
        if stage.reg_class_agnostic:
            return deltas
        by_class = deltas.unflatten(-1, (-1, 4))
        return torch.gather(by_class, 2, label[..., None, None].expand(-1, -1, 1, 4))[:, :, 0]


def _decoded(stage: Any, boxes: Tensor, deltas: Tensor, size: Tensor) -> Tensor:
    coder = stage.bbox_coder
    return clip_boxes(delta_to_box(boxes, deltas, coder.means, coder.stds), size)


def _check_extractor(extractor: Any) -> None:
    if type(extractor).__name__ != "SingleRoIExtractor":
        raise ValueError(f"a {type(extractor).__name__} cannot be exported; a SingleRoIExtractor can")
    layer = extractor.roi_layers[0]
    if type(layer).__name__ != "RoIAlign" or not layer.aligned or layer.pool_mode != "avg":
        raise ValueError(f"RoI features by {layer} cannot be exported; use RoIAlign (aligned, average)")
    if layer.output_size[0] != layer.output_size[1]:
        raise ValueError(f"RoI features of {layer.output_size} cannot be exported; use as many rows as columns")


def _extract(extractor: Any, features: Sequence[Tensor], boxes: Tensor) -> Tensor:
    layer = extractor.roi_layers[0]
    return pyramid_roi_align(
        features[: extractor.num_inputs],
        boxes,
        extractor.featmap_strides,
        output_size=layer.output_size[0],
        sampling_ratio=layer.sampling_ratio,
        finest_scale=extractor.finest_scale,
    )
