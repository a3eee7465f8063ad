"""The cascade of detectron2 (02b5c4e, modeling/roi_heads/cascade_rcnn.py) among MMDetection's RoI heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmdet.models.roi_heads import CascadeRoIHead as MMDetCascadeRoIHead
from mmdet.models.roi_heads import StandardRoIHead
from mmdet.structures.bbox import bbox2roi, get_box_tensor
from torch import Tensor

from ..registry import MODELS
from .federated_loss import FederatedLoss


@MODELS.register_module()
class CascadeRoIHead(MMDetCascadeRoIHead):
    """Cascade R-CNN (arXiv:1712.00726) as ViTDet's published detectors use it.

    It differs from MMDetection's in three points: the scores of the stages are averaged as probabilities, not as
    logits; one mask head, trained on the proposals of the first stage, serves the final boxes, instead of one per
    stage; and the gradient that each stage sends into the pyramid is divided by the number of stages. In training one
    difference to detectron2 remains: MMDetection samples anew in the later stages, detectron2 labels all boxes of the
    stage before.

    Args:
        **kwargs: Those of :class:`mmdet.models.CascadeRoIHead`, with one ``mask_head`` and one ``mask_roi_extractor``.

    Raises:
        ValueError: A list of mask heads, or a loss whose scores cannot be averaged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        losses = [head.loss_cls for head in self.bbox_head if head.custom_activation]
        if wrong := [type(loss).__name__ for loss in losses if not isinstance(loss, FederatedLoss)]:
            raise ValueError(f"vitdense.CascadeRoIHead averages softmax or FederatedLoss's sigmoids, not {wrong[0]}")

    def init_mask_head(self, mask_roi_extractor: dict, mask_head: dict) -> None:
        """Builds the one mask head, as in Mask R-CNN."""
        if isinstance(mask_head, list) or isinstance(mask_roi_extractor, list):
            raise ValueError("vitdense.CascadeRoIHead has one mask head for all stages: give one dict, not a list")
        StandardRoIHead.init_mask_head(self, mask_roi_extractor, mask_head)

    # It is asked as in Mask R-CNN too.
    _mask_forward = StandardRoIHead._mask_forward
    predict_mask = StandardRoIHead.predict_mask

    def _bbox_forward(self, stage: int, x: tuple[Tensor, ...], rois: Tensor) -> dict[str, Tensor]:
        extractor = self.bbox_roi_extractor[stage]
        features = extractor(x[: extractor.num_inputs], rois)
        if features.requires_grad:
            features.register_hook(lambda gradient: gradient / self.num_stages)
        scores, deltas = self.bbox_head[stage](features)
        return dict(cls_score=scores, bbox_pred=deltas, bbox_feats=features)

    def _refine_roi(
        self, x: tuple[Tensor, ...], rois: Tensor, batch_img_metas: list[dict], num_proposals_per_img: Sequence[int]
    ) -> tuple[Sequence[Tensor], list[Tensor], Sequence[Tensor]]:
        """Runs the stages.

        Returns:
            Per image the RoIs of the last stage, (N, 5); logits whose softmax (or sigmoid, of
            :class:`.federated_loss.FederatedLoss`) is the averaged probability, (N, classes + 1); and the box deltas of
            the last stage.
        """
        counts = list(num_proposals_per_img)
        probabilities = []
        for stage, head in enumerate(self.bbox_head):
            results = self._bbox_forward(stage, x, rois)
            logits = results["cls_score"]
            probabilities.append(head.loss_cls.get_activation(logits) if head.custom_activation else logits.softmax(-1))
            per_image = rois.split(counts), logits.split(counts), results["bbox_pred"].split(counts)
            if stage == self.num_stages - 1:
                break
            refined = []
            for boxes, scores, deltas, meta in zip(*per_image, batch_img_metas, strict=True):
                moved = head.regress_by_class(boxes[:, 1:], scores[:, :-1].argmax(dim=1), deltas, meta)
                refined.append(torch.cat([boxes[:, :1], get_box_tensor(moved)], dim=1))
            rois = torch.cat(refined)
        mean = torch.stack(probabilities).mean(dim=0)
        scores = mean.logit() if self.bbox_head[-1].custom_activation else mean.log()
        return per_image[0], list(scores.split(counts)), per_image[2]

    def forward(self, x: tuple[Tensor, ...], rpn_results_list: list, batch_data_samples: list) -> tuple:
        """Class scores and box deltas of the last stage per image, and mask logits of its boxes if there are masks."""
        proposals = [results.bboxes for results in rpn_results_list]
        metas = [sample.metainfo for sample in batch_data_samples]
        rois, scores, deltas = self._refine_roi(x, bbox2roi(proposals), metas, [len(boxes) for boxes in proposals])
        masks = (self._mask_forward(x, torch.cat(list(rois)))["mask_preds"],) if self.with_mask else ()
        return (scores, deltas, *masks)

    def mask_loss(self, stage: int, x: tuple[Tensor, ...], sampling_results: list, batch_gt_instances: list) -> dict:
        """Loss of the mask head on the positive proposals of the first stage; none in the others."""
        if stage > 0:
            return dict(loss_mask={})
        rois = bbox2roi([result.pos_priors for result in sampling_results])
        results: dict[str, Any] = self._mask_forward(x, rois)
        loss = self.mask_head.loss_and_target(
            mask_preds=results["mask_preds"],
            sampling_results=sampling_results,
            batch_gt_instances=batch_gt_instances,
            rcnn_train_cfg=self.train_cfg[0],
        )
        return {**results, **loss}
