"""FLOPs and parameters of a detector or segmenter by part: backbone, neck, heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class PartCost:
    """What one part of a model costs for one image.

    Args:
        flops: Floating-point operations of products and convolutions, a multiplication and an addition counted as two.
        parameters: Numbers that it holds.
    """

    flops: int
    parameters: int


def part_costs(
    model: nn.Module, shape: tuple[int, int], proposals: int = 1000, detections: int = 100
) -> dict[str, PartCost]:
    """Costs of backbone, neck, ``rpn_head``, ``bbox_head``, ``decode_head`` and ``roi_head``, for one image.

    Heads of a two-stage detector are counted for a fixed number of boxes; resampling of regions, NMS and what else is
    neither product nor convolution is not counted, and neither are auxiliary heads, which run in training alone. Of a
    DETR only backbone and neck are counted.

    Args:
        model: A detector of MMDetection or a segmenter of MMSegmentation; built on the meta device it costs nothing.
        shape: Height and width in pixels.
        proposals: Boxes that reach the box head. Defaults to 1000.
        detections: Boxes that reach the mask head. Defaults to 100.

    Returns:
        Costs by the name of the part.
    """
    device = next(model.backbone.parameters()).device
    image = torch.empty(1, 3, *shape, device=device)
    was_training = model.training
    model.eval()
    try:
        # torch counts the products of attention for the plain kernel only.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return _costs(model, image, proposals, detections)
    finally:
        model.train(was_training)


def _costs(model: nn.Module, image: torch.Tensor, proposals: int, detections: int) -> dict[str, PartCost]:
    with FlopCounterMode(display=False) as counter:
        features = model.backbone(image)
    costs = {"backbone": PartCost(counter.get_total_flops(), _parameters(model.backbone))}
    for name in ("neck", "rpn_head", "bbox_head", "decode_head"):
        part = getattr(model, name, None)
        if not isinstance(part, nn.Module) or (name == "bbox_head" and hasattr(model, "decoder")):
            continue
        with FlopCounterMode(display=False) as counter:
            out = part(features)
        features = out if name == "neck" else features
        costs[name] = PartCost(counter.get_total_flops(), _parameters(part))
    if hasattr(model, "roi_head"):
        costs["roi_head"] = _roi_cost(model.roi_head, image.device, proposals, detections)
    return costs


def _roi_cost(head: nn.Module, device: torch.device, proposals: int, detections: int) -> PartCost:
    boxes = head.bbox_head if isinstance(head.bbox_head, nn.ModuleList) else [head.bbox_head]
    with FlopCounterMode(display=False) as counter:
        for box in boxes:
            box(torch.empty(proposals, box.in_channels, *box.roi_feat_size, device=device))
        if head.with_mask:
            size = head.mask_roi_extractor.roi_layers[0].output_size
            head.mask_head(torch.empty(detections, head.mask_head.in_channels, *size, device=device))
    return PartCost(counter.get_total_flops(), _parameters(head))


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
