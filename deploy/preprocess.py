"""From an image to the tensor a model takes: the one preprocessing for calibration, evaluation and the device."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deploy.specs import InputSpec


@dataclass(frozen=True)
class Geometry:
    """How an image was placed in the input tensor. All pairs are H before W.

    Attributes:
        original_size: Of the image, in pixels.
        resized_size: Of the image within the tensor; it starts at the top left corner, the rest is padding.
        scale: `resized_size / original_size`.
    """

    original_size: tuple[int, int]
    resized_size: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """Tensor pixels per image pixel, vertical and horizontal."""
        return self.resized_size[0] / self.original_size[0], self.resized_size[1] / self.original_size[1]

    @property
    def valid_region(self) -> tuple[slice, slice]:
        """The rows and columns of the tensor that are image and not padding."""
        return slice(0, self.resized_size[0]), slice(0, self.resized_size[1])


def resized_size(original_size: tuple[int, int], input_size: tuple[int, int], resize: str) -> tuple[int, int]:
    """Compute how large an image becomes inside the input.

    'letterbox' scales both sides by `min(H / h, W / w)` and rounds half up, as MMCV's `imrescale` does. MMCV takes the
    target as an unordered pair of a long and a short edge, so a tall image may outgrow a wide target; a static shape
    cannot give way, so here H limits h and W limits w, and the rounded result is clipped to the shape. The two agree
    wherever image and input are both tall, both wide, or the input is square.

    Args:
        original_size: (h, w) in pixels.
        input_size: (H, W) of the model's input.
        resize: 'stretch' or 'letterbox'.

    Returns:
        (height, width), at least 1 and at most `input_size`.
    """
    if resize == "stretch":
        return input_size
    (height, width), (limit_h, limit_w) = original_size, input_size
    scale = min(limit_h / height, limit_w / width)
    return (
        max(1, min(limit_h, int(height * scale + 0.5))),
        max(1, min(limit_w, int(width * scale + 0.5))),
    )


class Preprocessor:
    """Resize, order the channels, normalise, pad: in this order.

    Args:
        input_spec: The manifest's input. Images are handled one at a time whatever its N.
    """

    def __init__(self, input_spec: InputSpec) -> None:
        self.input_spec = input_spec
        self._mean = np.array(input_spec.mean, dtype=np.float32)
        self._std = np.array(input_spec.std, dtype=np.float32)

    def __call__(self, image: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Geometry]:
        """Make the input tensor of one image.

        Args:
            image: (h, w, 3) uint8, BGR, as `deploy.io.read_image` gives it.

        Returns:
            The tensor, (1, 3, H, W), contiguous, of the spec's dtype; and where the image lies in it.

        Raises:
            ValueError: The image has another shape or dtype.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
            raise ValueError(f"got an image of {image.dtype} {image.shape}; expected uint8 (height, width, 3), BGR")
        spec = self.input_spec
        size = resized_size((image.shape[0], image.shape[1]), spec.size, spec.resize)
        geometry = Geometry((image.shape[0], image.shape[1]), size)
        if size != geometry.original_size:
            image = cv2.resize(image, (size[1], size[0]), interpolation=cv2.INTER_LINEAR)
        planes = cv2.split(image)
        if spec.color_order == "RGB":
            planes = planes[::-1]

        tensor = np.empty((1, 3, *spec.size), dtype=spec.dtype)
        for channel, plane in enumerate(planes):
            target = tensor[0, channel]
            if size != spec.size:
                target.fill(spec.pad_values[channel])
            valid = target[geometry.valid_region]
            if spec.normalize_in_graph:
                valid[:] = plane
            else:
                # Subtract, then divide, each rounded to float32: bit-equal to the data preprocessor of training.
                np.subtract(plane, self._mean[channel], out=valid, dtype=np.float32)
                np.divide(valid, self._std[channel], out=valid)
        return tensor, geometry
