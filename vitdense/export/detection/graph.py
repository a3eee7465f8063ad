"""A whole detector as one static graph: image in, a fixed number of boxes out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..outputs import GraphOutput
from .boxes import image_size
from .candidates import CANDIDATES, ROUNDS, Detections, Limits
from .one_stage import DenseHead, dynamic_masks
from .two_stage import BoxAndMaskHead, Proposals

SHOWN_SCORE = 0.3  # below it pictures of detectors fill with what is not there


class DetectorGraph(nn.Module):
    """One-stage detectors with a dense head, and two-stage detectors with RPN and RoI head, post-processing included.

    Boxes are cut to the image, whose size within the padded input the graph finds itself (:func:`.boxes.image_size`).

    Args:
        model: A detector of MMDetection in evaluation mode; its ``test_cfg`` says thresholds and numbers.
        shape: (H, W) of the input in pixels.
        rounds: Of every suppression, see :func:`.nms.suppress`. Defaults to :data:`.candidates.ROUNDS`.
        candidates: Boxes that reach the last suppression. Defaults to :data:`.candidates.CANDIDATES`.

    Raises:
        ValueError: A part of the detector, or an option of its ``test_cfg``, has no static form here; it is named.
    """

    def __init__(self, model: Any, shape: tuple[int, int], rounds: int = ROUNDS, candidates: int = CANDIDATES) -> None:
        super().__init__()
        if hasattr(model, "decoder"):
            raise ValueError(f"a {type(model).__name__} (a DETR) cannot be exported yet; --task features can")
        self.pad_value = float(getattr(model.data_preprocessor, "pad_value", 0))
        self.backbone = model.backbone
        self.neck = model.neck if model.with_neck else nn.Identity()
        with torch.no_grad():
            features = self.neck(self.backbone(torch.zeros(1, 3, *shape)))
        sizes = [(int(feature.shape[-2]), int(feature.shape[-1])) for feature in features]
        self.rpn: Proposals | None = None
        if hasattr(model, "roi_head"):
            rpn, rcnn = model.test_cfg.rpn, model.test_cfg.rcnn
            first = Limits(
                score_threshold=0.0,
                iou_threshold=_iou(rpn),
                per_level=_setting(rpn, "nms_pre"),
                detections=_setting(rpn, "max_per_img"),
                rounds=rounds,
                min_size=rpn.get("min_bbox_size", -1),
            )
            last = Limits(
                score_threshold=_setting(rcnn, "score_thr"),
                iou_threshold=_iou(rcnn),
                candidates=candidates,
                detections=_setting(rcnn, "max_per_img"),
                rounds=rounds,
                min_size=-1,
            )
            self.rpn = Proposals(model.rpn_head, sizes, first)
            self.head: Any = BoxAndMaskHead(model.roi_head, last)
            self.has_masks = model.roi_head.with_mask
        else:
            cfg = model.test_cfg
            limits = Limits(
                score_threshold=_setting(cfg, "score_thr"),
                iou_threshold=_iou(cfg),
                per_level=_setting(cfg, "nms_pre"),
                candidates=candidates,
                detections=_setting(cfg, "max_per_img"),
                rounds=rounds,
                min_size=_smallest(cfg),
            )
            self.head = DenseHead(model.bbox_head, sizes, limits)
            self.has_masks = hasattr(model.bbox_head, "num_gen_params")
            if self.has_masks:
                grid = model.bbox_head.prior_generator.single_level_grid_priors(sizes[0], 0, device="cpu")
                self.register_buffer("mask_grid", grid, persistent=False)

    @property
    def num_classes(self) -> int:
        """Classes of objects."""
        return int(self.head.stages[-1].num_classes if self.rpn is not None else self.head.head.num_classes)

    @property
    def task(self) -> str:
        """'instance_segmentation' or 'detection'."""
        return "instance_segmentation" if self.has_masks else "detection"

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Maps (B, 3, H, W) to boxes (B, N, 4), scores (B, N), labels (B, N), number (B,), checks (B, 2) and masks.

        ``checks`` holds whether every suppression converged (1.0) and how many boxes found no place. Masks of a
        two-stage detector are probabilities over each box (B, N, m, m), those of RTMDet-Ins logits over the input
        (B, N, h, w).
        """
        size = image_size(image, self.pad_value)
        features = self.neck(self.backbone(image))
        masks: Tensor | None
        if self.rpn is not None:
            proposals, objectness, converged = self.rpn(features, size)
            found, masks = self.head(features, proposals, objectness, size)
            found = found._replace(converged=torch.minimum(found.converged, converged))
        else:
            found, mask_features = self.head(features, size)
            masks = self._masks(mask_features, found) if self.has_masks else None
        best = found.candidates
        checks = torch.stack([found.converged, found.overflow.to(found.converged.dtype)], dim=1)
        outputs = (best.boxes, best.scores, best.labels, found.number, checks)
        return outputs if masks is None else (*outputs, masks)

    def _masks(self, features: Tensor, found: Detections) -> Tensor:
        logits = dynamic_masks(features, found.candidates.extra, self.head.head, self.get_buffer("mask_grid"))
        filled = (found.candidates.scores > 0).to(logits.dtype)
        return logits * filled[..., None, None]

    def outputs(self, count: int) -> list[GraphOutput]:
        """Names, kinds and meanings of what :meth:`forward` gives, in order."""
        masks = [
            GraphOutput("masks", "box_masks", "probability that a cell of the box belongs to its object")
            if self.rpn is not None
            else GraphOutput("masks", "mask_logits", "score of each cell of the input for each object, before sigmoid")
        ]
        return [
            GraphOutput("boxes", "boxes", "left, top, right, bottom in pixels of the input, by falling score"),
            GraphOutput("scores", "scores", "0 to 1; 0 where there is no object"),
            GraphOutput("labels", "labels", "class index"),
            GraphOutput("number", "number", "how many of the objects are real"),
            GraphOutput("checks", "checks", "1 if suppression came to its end; boxes that found no room"),
            *(masks if self.has_masks else []),
        ]


def detector_thresholds(model: Any) -> dict[str, float]:
    """Thresholds for the manifest: from which score objects are shown, and from which probability a pixel is one's."""
    cfg = model.test_cfg.rcnn if hasattr(model, "roi_head") else model.test_cfg
    mask: dict[str, float] = {}
    if model.roi_head.with_mask if hasattr(model, "roi_head") else hasattr(model.bbox_head, "num_gen_params"):
        mask = {"mask": float(_setting(cfg, "mask_thr_binary"))}
        if not 0 < mask["mask"] < 1:
            raise ValueError(f"test_cfg.mask_thr_binary={mask['mask']:g} must lie between 0 and 1")
    return {"score": max(SHOWN_SCORE, float(cfg.score_thr)), **mask}


def _setting(cfg: Any, name: str) -> Any:
    if cfg.get(name) is None:
        raise ValueError(f"test_cfg has no {name}, which a static graph needs: {sorted(cfg)}")
    return cfg[name]


def _smallest(cfg: Any) -> float:
    """``min_bbox_size`` of a one-stage detector, which MMDetection compares with boxes in the original image."""
    size = float(cfg.get("min_bbox_size", -1))
    if size > 0:
        raise ValueError(
            f"test_cfg.min_bbox_size={size:g} is in pixels of the original image, whose size a static graph does not "
            "know; export with --cfg-options model.test_cfg.min_bbox_size=0 and leave small boxes out behind it"
        )
    return size


def _iou(cfg: Any) -> float:
    nms = _setting(cfg, "nms")
    if nms.get("type", "nms") != "nms" or nms.get("class_agnostic") or set(nms) - {"type", "iou_threshold"}:
        raise ValueError(f"test_cfg has nms={dict(nms)}; a static graph knows dict(type='nms', iou_threshold=...)")
    return float(nms.iou_threshold)
