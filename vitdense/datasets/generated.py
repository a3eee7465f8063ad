"""A data set that is drawn, not downloaded: coloured shapes on textured ground, with index masks.

For a first look at training without any data at hand. It is no benchmark.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from deploy.io import write_image

CLASSES = ("ground", "disc", "square", "triangle")
# BGR around which a class is drawn: shape and hue both tell it, so that a small model learns it in seconds.
_COLOURS = {1: (60, 60, 210), 2: (210, 90, 60), 3: (60, 200, 220)}
_Image = npt.NDArray[np.uint8]


def write_shapes(root: Path, num_train: int = 48, num_val: int = 12, size: int = 224, seed: int = 0) -> None:
    """Writes ``images/{train,val}/*.jpg`` and ``masks/{train,val}/*.png`` in MMSegmentation's folder layout.

    Args:
        root: Folder to write to; made if missing.
        num_train: Training images. Defaults to 48.
        num_val: Validation images. Defaults to 12.
        size: Side of an image in pixels. Defaults to 224.
        seed: The same seed gives the same images. Defaults to 0.

    Raises:
        ValueError: A count or size that is too small.
    """
    if min(num_train, num_val) < 1 or not 64 <= size <= 4096:
        raise ValueError(
            f"expected at least 1 image per split and 64 to 4096 pixels, got {num_train}, {num_val} and {size}"
        )
    rng = np.random.default_rng(seed)
    for split, count in (("train", num_train), ("val", num_val)):
        for kind in ("images", "masks"):
            (root / kind / split).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            image, mask = draw_scene(rng, size)
            write_image(root / "images" / split / f"{index:04d}.jpg", image)
            write_image(root / "masks" / split / f"{index:04d}.png", mask)


def draw_scene(rng: np.random.Generator, size: int) -> tuple[_Image, _Image]:
    """Draws two to five shapes on noise-textured ground.

    Returns:
        The image (size, size, 3) BGR and its class indices (size, size).
    """
    coarse = rng.integers(40, 140, (size // 16, size // 16, 3)).astype(np.uint8)
    image = cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    mask = np.zeros((size, size), np.uint8)
    for _ in range(int(rng.integers(2, 6))):
        label = int(rng.integers(1, len(CLASSES)))
        colour = np.clip(np.array(_COLOURS[label]) + rng.integers(-40, 41, 3), 0, 255).tolist()
        outline = _outline(label, rng, size)
        cv2.fillPoly(image, [outline], colour, lineType=cv2.LINE_AA)
        cv2.fillPoly(mask, [outline], label)
    noise = rng.normal(0, 8, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8), mask


def _outline(label: int, rng: np.random.Generator, size: int) -> npt.NDArray[np.int32]:
    """Corner points of a randomly placed, sized and turned shape."""
    corners = {1: 40, 2: 4, 3: 3}[label]
    radius = rng.uniform(0.1, 0.22) * size
    centre = rng.uniform(radius, size - radius, 2)
    angles = rng.uniform(0, 2 * np.pi) + np.arange(corners) * 2 * np.pi / corners
    points = centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return points.round().astype(np.int32)
