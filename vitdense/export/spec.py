"""What the manifest says of input and outputs, read from the training config and the graph."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from mmengine.config import Config

from deploy.specs import InputSpec, OutputSpec

from ..datasets import leaf_datasets
from .outputs import GraphOutput

Array = npt.NDArray[Any]
_MAPS = ("logits", "feature", "mask_logits")
_HARMLESS = {"LoadImageFromFile", "LoadAnnotations", "PackSegInputs", "PackDetInputs"}


def input_spec(cfg: Config, shape: tuple[int, int], batch: int = 1) -> InputSpec:
    """Reads the test-time preprocessing of a config.

    Args:
        cfg: A config of MMDetection or MMSegmentation.
        shape: (H, W) of the exported input in pixels.
        batch: Images per run. Defaults to 1.

    Raises:
        ValueError: The config has no normalisation, or its test pipeline does what the device does not.
    """
    preprocessor = cfg.model.get("data_preprocessor") or cfg.get("data_preprocessor") or {}
    if preprocessor.get("mean") is None or preprocessor.get("std") is None:
        raise ValueError("model.data_preprocessor needs mean and std, so that the manifest can say how to normalise")
    resize = _resize_step(_test_pipeline(cfg))
    pad_value = preprocessor.get("pad_val", preprocessor.get("pad_value", 0))
    return InputSpec(
        name="image",
        shape=(batch, 3, *shape),
        dtype="float32",
        color_order="RGB" if preprocessor.get("bgr_to_rgb") else "BGR",
        mean=tuple(preprocessor["mean"]),
        std=tuple(preprocessor["std"]),
        normalize_in_graph=False,
        resize="letterbox" if resize.get("keep_ratio") else "stretch",
        pad_value=float(pad_value),
    )


def _resize_step(pipeline: Sequence[Any]) -> Any:
    """The one Resize of a test pipeline; every other step must be one that leaves the pixels alone."""
    steps = {str(step["type"]).rsplit(".", 1)[-1]: step for step in pipeline}
    unknown = sorted(set(steps) - _HARMLESS - {"Resize"})
    if unknown:
        raise ValueError(
            f"the test pipeline has {unknown}, which the device does not do; it knows Resize, and padding and "
            "normalising as model.data_preprocessor says"
        )
    resize = steps.get("Resize")
    if resize is None:
        raise ValueError("the test pipeline has no Resize, so it is not known how an image becomes the static shape")
    if resize.get("interpolation", "bilinear") != "bilinear" or resize.get("backend", "cv2") != "cv2":
        raise ValueError(f"the Resize of the test pipeline must be bilinear with cv2, it is {dict(resize)}")
    return resize


def output_specs(
    outputs: Sequence[GraphOutput], arrays: Sequence[Array], input_shape: tuple[int, int], patch_size: int
) -> tuple[OutputSpec, ...]:
    """Describes the outputs of a graph.

    Args:
        outputs: Their names and meanings.
        arrays: What the graph gave for an image, in their order.
        input_shape: (H, W) of the input in pixels.
        patch_size: Of the backbone, 1 if it has no patches; the stride of a map is it times a power of two, also where
            sizes were rounded.
    """
    return tuple(
        OutputSpec(
            name=output.name,
            shape=tuple(array.shape),
            dtype=str(array.dtype),
            kind=output.kind,
            stride=(
                patch_size * 2.0 ** round(math.log2(input_shape[0] / array.shape[2] / patch_size))
                if output.kind in _MAPS
                else 1
            ),
            meaning=output.meaning,
        )
        for output, array in zip(outputs, arrays, strict=True)
    )


def classes_and_palette(metainfo: dict[str, Any], num_classes: int) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Class names and RGB colours of the data set.

    Raises:
        ValueError: The data set names another number of classes than the model has.
    """
    classes = [str(name) for name in metainfo.get("classes") or ()]
    if len(classes) != num_classes:
        raise ValueError(
            f"the model has {num_classes} classes, the data set of the config names {len(classes)}: {classes}"
        )
    palette = [(int(red), int(green), int(blue)) for red, green, blue in metainfo.get("palette") or ()]
    if len(palette) < num_classes:  # none at all, as LVIS's; or that of other classes, which would mislead
        palette = [_colour(index) for index in range(num_classes)]
    return classes, palette[:num_classes]


def _colour(index: int) -> tuple[int, int, int]:
    """A colour for a class without one: hues a golden section apart, so that neighbours differ."""
    red, green, blue = colorsys.hsv_to_rgb(index * 0.618034 % 1, 0.75, 0.9)
    return round(red * 255), round(green * 255), round(blue * 255)


def _test_pipeline(cfg: Config) -> Sequence[Any]:
    _, dataset = next(leaf_datasets(cfg.get("test_dataloader", {}).get("dataset", {}), ""))
    if "pipeline" not in dataset:
        raise ValueError("the config has no test_dataloader with a pipeline")
    pipeline: Sequence[Any] = dataset["pipeline"]
    return pipeline
