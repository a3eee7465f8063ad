"""What of a trained model becomes the graph: tensor in, tensors out, no OpenMMLab data structures."""

from __future__ import annotations

from torch import Tensor, nn

from .detection.graph import DetectorGraph
from .outputs import GraphOutput


class SegmenterGraph(nn.Module):
    """Image to logits of an MMSegmentation ``EncoderDecoder``, at the stride of its head.

    Enlarging the logits to the image is left to the host: it knows the image's size, and sixteen times fewer numbers
    leave the device.

    Args:
        model: The segmenter.
    """

    task = "segmentation"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.backbone = model.get_submodule("backbone")
        self.neck = _neck(model)
        self.decode_head = model.get_submodule("decode_head")

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Maps (N, 3, H, W) to logits (N, classes, h, w)."""
        return (self.decode_head(self.neck(self.backbone(image))),)

    def outputs(self, count: int) -> list[GraphOutput]:
        """One output: the logits."""
        return [GraphOutput("logits", "logits", "score of each class before softmax, by class along axis 1")]


class FeatureGraph(nn.Module):
    """Image to feature maps: the backbone, and the neck where there is one.

    Args:
        model: Any detector or segmenter, or a bare backbone.
    """

    task = "features"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.backbone = model.get_submodule("backbone") if hasattr(model, "backbone") else model
        self.neck = _neck(model)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Maps (N, 3, H, W) to a tuple of (N, C, h, w)."""
        return tuple(self.neck(self.backbone(image)))

    def outputs(self, count: int) -> list[GraphOutput]:
        """``feature_0`` is the first map of the tuple."""
        return [
            GraphOutput(f"feature_{i}", "feature", f"map {i} of the neck's (or backbone's) tuple") for i in range(count)
        ]


def _neck(model: nn.Module) -> nn.Module:
    return model.get_submodule("neck") if getattr(model, "with_neck", False) else nn.Identity()


Graph = SegmenterGraph | FeatureGraph | DetectorGraph
TASKS = ("auto", "segmentation", "detection", "features")


def wrap(model: nn.Module, task: str, shape: tuple[int, int], **nms: int) -> Graph:
    """Chooses the graph for a task.

    Args:
        model: The trained model.
        task: 'auto' (what the model is for), 'segmentation', 'detection' (with masks where the model makes them) or
            'features'.
        shape: (H, W) of the input in pixels.
        **nms: ``rounds`` and ``candidates`` of :class:`.detection.graph.DetectorGraph`.

    Raises:
        ValueError: Unknown task, or a model that the task does not fit.
    """
    if task not in TASKS:
        raise ValueError(f"task='{task}' is unknown; choose one of {', '.join(TASKS)}")
    if task == "features":
        return FeatureGraph(model)
    if hasattr(model, "decode_head") and task != "detection":
        _check_segmenter(model)
        return SegmenterGraph(model)
    if (hasattr(model, "bbox_head") or hasattr(model, "roi_head")) and task != "segmentation":
        return DetectorGraph(model, shape, **nms)
    raise ValueError(
        f"a {type(model).__name__} cannot be exported as task '{task}'; export backbone and pyramid with "
        "--task features"
    )


def _check_segmenter(model: nn.Module) -> None:
    """Refuses what the host's postprocessing does not do: it would give another result than the model does."""
    head, test_cfg = model.decode_head, getattr(model, "test_cfg", None) or {}
    if not isinstance(head, nn.Module) or isinstance(head, nn.ModuleList):
        raise ValueError(f"a {type(model).__name__} has several decode heads; only one can be exported")
    if getattr(head, "align_corners", False):
        raise ValueError("decode_head.align_corners=True: the host resizes logits with align_corners=False; train so")
    if test_cfg.get("mode", "whole") != "whole":
        raise ValueError(f"test_cfg.mode='{test_cfg['mode']}': a static graph sees the whole image; use mode='whole'")
    if getattr(head, "out_channels", 2) < 2:
        raise ValueError("decode_head.out_channels=1 (a sigmoid with a threshold): train with one channel per class")
