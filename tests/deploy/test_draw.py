"""Tests of deploy.draw."""

import numpy as np
import pytest

from deploy.draw import add_legend, overlay, side_by_side

PALETTE = [(255, 0, 0), (0, 0, 255)]
CLASSES = ["person", "a class with quite a long name"]


def test_overlay_mixes_the_colour_and_draws_the_border():
    image = np.full((20, 30, 3), 100, np.uint8)
    class_map = np.zeros((20, 30), np.uint8)
    class_map[:, 15:] = 1
    before = image.copy()
    result = overlay(image, class_map, PALETTE, alpha=0.5)
    assert result[5, 5].tolist() == [50, 50, 178]  # BGR: red is last
    assert result[5, 25].tolist() == [178, 50, 50]
    assert result[5, 14].min() > 200
    np.testing.assert_array_equal(image, before)


def test_overlay_leaves_what_has_no_colour():
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(overlay(image, np.full((8, 8), 255, np.uint8), PALETTE), image)
    np.testing.assert_array_equal(overlay(image, np.zeros((8, 8), np.uint16), PALETTE, alpha=0.0), image)


def test_overlay_errors():
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match=r"class map is \(8, 9\)"):
        overlay(image, np.zeros((8, 9), np.uint8), PALETTE)
    with pytest.raises(ValueError, match="alpha is 2"):
        overlay(image, np.zeros((8, 8), np.uint8), PALETTE, alpha=2)


@pytest.mark.parametrize("size", [(5, 5), (60, 90), (300, 40), (1000, 1500)])
def test_legend_keeps_the_image_and_shows_the_classes_present(size):
    image = np.full((*size, 3), 7, np.uint8)
    result = add_legend(image, CLASSES, PALETTE, present=[1])
    height, width = size
    np.testing.assert_array_equal(result[:height, :width], image)
    panel = result[height:].reshape(-1, 3)
    assert len(panel) and (panel == (255, 0, 0)).all(axis=1).any()  # class 1, blue, is there
    assert not (panel == (0, 0, 255)).all(axis=1).any()  # class 0, red, is not
    assert (panel.max(axis=1) < 90).any()  # ink


def test_no_class_no_legend():
    image = np.full((9, 9, 3), 7, np.uint8)
    np.testing.assert_array_equal(add_legend(image, CLASSES, PALETTE, present=[]), image)


def test_side_by_side():
    left, right = np.full((40, 60, 3), 10, np.uint8), np.full((80, 60, 3), 20, np.uint8)
    result = side_by_side([left, right], ["FP32", "INT8"])
    assert (result == 10).all(axis=2).sum() >= 40 * 60
    assert (result == 20).all(axis=2).sum() >= 40 * 30
    assert result.shape[0] < 100
    with pytest.raises(ValueError, match="2 panels and 1 titles"):
        side_by_side([left, right], ["FP32"])
