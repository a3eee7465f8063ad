"""What of a trained model becomes the graph: tensor in, tensors out, no OpenMMLab data structures."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class GraphOutput:
    """Name and meaning of one output of the graph."""

    name: str
    kind: str
    meaning: str


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


Graph = SegmenterGraph | FeatureGraph


def wrap(model: nn.Module, task: str) -> Graph:
    """Chooses the graph for a task.

    Args:
        model: The trained model.
        task: 'auto' (a segmenter's logits, else an error), 'segmentation' or 'features'.

    Raises:
        ValueError: Unknown task, or a model that the task does not fit.
    """
    if task not in ("auto", "segmentation", "features"):
        raise ValueError(f"task='{task}' is unknown; choose 'auto', 'segmentation' or 'features'")
    if task == "features":
        return FeatureGraph(model)
    if not hasattr(model, "decode_head"):
        raise ValueError(
            f"a {type(model).__name__} is no segmenter with one decode head; whole detectors cannot be exported yet. "
            "Export backbone and pyramid with --task features"
        )
    return SegmenterGraph(model)
