"""Tests of deploy.postprocess against bilinear interpolation written out in numpy."""

import cv2
import numpy as np
import pytest

from deploy.postprocess import segmentation_map
from deploy.preprocess import Geometry


def bilinear(planes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize (K, h, w) in float64: half-pixel centres, clamped at the border, no antialias."""
    for axis, length in ((1, size[0]), (2, size[1])):
        count = planes.shape[axis]
        position = np.maximum((np.arange(length) + 0.5) * count / length - 0.5, 0)
        low = np.minimum(np.floor(position).astype(int), count - 1)
        high = np.minimum(low + 1, count - 1)
        weight = (position - low).reshape([-1 if a == axis else 1 for a in range(3)])
        planes = np.take(planes, low, axis) * (1 - weight) + np.take(planes, high, axis) * weight
    return planes


@pytest.mark.parametrize("source", [(12, 16), (13, 7), (1, 1), (1, 5), (64, 64)])
@pytest.mark.parametrize("target", [(48, 64), (61, 83), (7, 5), (6, 8), (32, 32), (100, 3)])
def test_opencv_resizes_as_the_formula_does(source, target):
    plane = np.random.default_rng(1).normal(size=source).astype(np.float32)
    resized = cv2.resize(plane, target[::-1], interpolation=cv2.INTER_LINEAR)
    expected = bilinear(plane[None].astype(np.float64), target)[0]
    np.testing.assert_allclose(np.asarray(resized).reshape(target), expected, atol=2e-5)


def _expected_map(logits, geometry, input_size):
    enlarged = bilinear(logits.astype(np.float64), input_size)
    height, width = geometry.resized_size
    scores = bilinear(enlarged[:, :height, :width], geometry.original_size)
    top = np.sort(scores, axis=0)
    clear = top[-1] - top[-2] > 1e-4 if len(top) > 1 else np.ones(geometry.original_size, bool)
    return scores.argmax(0), clear


@pytest.mark.parametrize("classes", [2, 5, 150, 600])
@pytest.mark.parametrize(
    "geometry", [Geometry((61, 83), (47, 64)), Geometry((83, 61), (48, 35)), Geometry((20, 9), (48, 22))]
)
def test_segmentation_map(classes, geometry):
    logits = np.random.default_rng(classes).normal(size=(classes, 12, 16)).astype(np.float32)
    result = segmentation_map(logits, geometry, (48, 64))
    expected, clear = _expected_map(logits, geometry, (48, 64))
    assert result.shape == geometry.original_size
    assert result.dtype == (np.uint8 if classes <= 255 else np.uint16)
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(result[clear], expected[clear])


def test_the_padding_has_no_say():
    logits = np.zeros((2, 4, 4), np.float32)
    logits[1, :, 3] = 50  # the last quarter of the width, beyond the border cell that the resize mixes in
    assert segmentation_map(logits, Geometry((40, 20), (16, 8)), (16, 16)).max() == 0


def test_the_lower_index_wins_a_tie():
    assert (segmentation_map(np.ones((3, 2, 2), np.float32), Geometry((5, 5), (4, 4)), (4, 4)) == 0).all()


@pytest.mark.parametrize(("classes", "dtype"), [(255, np.uint8), (256, np.uint16)])
def test_the_last_class_fits(classes, dtype):
    logits = np.zeros((classes, 2, 2), np.float32)
    logits[-1] = 1
    result = segmentation_map(logits, Geometry((3, 3), (4, 4)), (4, 4))
    assert result.dtype == dtype and (result == classes - 1).all()


def test_wrong_logits():
    geometry = Geometry((3, 3), (4, 4))
    with pytest.raises(ValueError, match="NaN"):
        segmentation_map(np.full((2, 2, 2), np.nan, np.float32), geometry, (4, 4))
    with pytest.raises(ValueError, match=r"expected \(classes, height, width\)"):
        segmentation_map(np.zeros((1, 2, 2, 2), np.float32), geometry, (4, 4))
