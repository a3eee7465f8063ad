"""From the outputs of a model back to the pixels of the image."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deploy.preprocess import Geometry


def _resize(plane: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    if plane.shape == size:
        return plane
    return np.asarray(cv2.resize(plane, (size[1], size[0]), interpolation=cv2.INTER_LINEAR))


def segmentation_map(
    logits: npt.NDArray[np.float32], geometry: Geometry, input_size: tuple[int, int]
) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint16]:
    """Turn logits into a class per pixel of the original image, as MMSegmentation does at test time.

    The logits are resized to the input's size, cropped to the part that is image, resized to the original size, and
    only then compared: both resizes are bilinear with half-pixel centres (`align_corners=False`, no antialias).

    Args:
        logits: (K, h, w), one map per class.
        geometry: Where the image lay in the input, from `Preprocessor`.
        input_size: (H, W) of the model's input.

    Returns:
        (H0, W0) class indices; uint8, or uint16 above 255 classes. Of equal scores the lower index wins.

    Raises:
        ValueError: The logits have another shape, or hold NaN or infinity.
    """
    if logits.ndim != 3 or 0 in logits.shape:
        raise ValueError(f"got logits of shape {logits.shape}; expected (classes, height, width)")
    if not np.isfinite(logits).all():
        raise ValueError("the model's logits hold NaN or infinity; the class map would be meaningless")
    classes = np.zeros(geometry.original_size, dtype=np.uint8 if len(logits) <= 255 else np.uint16)
    best = np.full(geometry.original_size, -np.inf, dtype=np.float32)
    # One class at a time: cv2.resize takes at most 127 to 512 channels, depending on its version, and 150 float maps of
    # a 12-megapixel photo would be 7 GB.
    for index, plane in enumerate(logits.astype(np.float32, copy=False)):
        enlarged = _resize(np.ascontiguousarray(plane), input_size)
        valid = np.ascontiguousarray(enlarged[geometry.valid_region])
        scores = _resize(valid, geometry.original_size)
        better = scores > best
        np.copyto(classes, classes.dtype.type(index), where=better)
        np.maximum(best, scores, out=best)
    return classes
