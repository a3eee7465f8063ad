"""Tests of deploy.preprocess against formulas written down a second time."""

import cv2
import numpy as np
import pytest

from deploy.preprocess import Geometry, Preprocessor, resized_size

SIZES = [(61, 83), (83, 61), (48, 64), (1, 1), (7, 900), (900, 7), (256, 309), (24, 32)]


def _random_image(size):
    return np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)


def _expected(image, spec, height, width):
    """Resize to (height, width), then pixel by pixel: channel order, (x - mean) / std in float32, padding last."""
    resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    tensor = np.full(spec.shape, spec.pad_value, np.float32)
    for channel in range(3):
        source = 2 - channel if spec.color_order == "RGB" else channel
        values = resized[:, :, source].astype(np.float32)
        tensor[0, channel, :height, :width] = (values - np.float32(spec.mean[channel])) / np.float32(spec.std[channel])
    return tensor


@pytest.mark.parametrize("color_order", ["RGB", "BGR"])
@pytest.mark.parametrize("size", SIZES)
def test_stretch(size, color_order, new_input):
    spec = new_input(resize="stretch", color_order=color_order)
    image = _random_image(size)
    tensor, geometry = Preprocessor(spec)(image)
    assert tensor.dtype == np.float32 and tensor.flags.c_contiguous
    np.testing.assert_array_equal(tensor, _expected(image, spec, 48, 64))
    assert geometry == Geometry(size, (48, 64))
    assert geometry.scale == pytest.approx((48 / size[0], 64 / size[1]))


@pytest.mark.parametrize("pad_value", [0.0, -1.5])
@pytest.mark.parametrize("size", SIZES)
def test_letterbox(size, pad_value, new_input):
    spec = new_input(pad_value=pad_value)
    image = _random_image(size)
    tensor, geometry = Preprocessor(spec)(image)
    height, width = geometry.resized_size
    assert tensor.shape == spec.shape and geometry.original_size == size
    np.testing.assert_array_equal(tensor, _expected(image, spec, height, width))
    assert tensor[0, 0][geometry.valid_region].shape == (height, width)


def test_letterbox_never_exceeds_the_shape_and_fills_one_side():
    rng = np.random.default_rng(0)
    for _ in range(3000):
        size, limit = (tuple(int(v) for v in rng.integers(1, 1500, 2)) for _ in range(2))
        height, width = resized_size(size, limit, "letterbox")
        assert 1 <= height <= limit[0] and 1 <= width <= limit[1]
        assert height == limit[0] or width == limit[1]
        scale = min(limit[0] / size[0], limit[1] / size[1])
        assert abs(height - max(1, size[0] * scale)) <= 0.5 + 1e-6
        assert abs(width - max(1, size[1] * scale)) <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("size", "limit"), [((427, 640), (512, 512)), ((640, 427), (512, 512)), ((427, 640), (448, 896))]
)
def test_letterbox_agrees_with_the_long_and_short_edge_rule(size, limit):
    """The rule of MMCV: the target is a long and a short edge, whichever way round the image lies."""
    scale = min(max(limit) / max(size), min(limit) / min(size))
    assert resized_size(size, limit, "letterbox") == tuple(int(side * scale + 0.5) for side in size)


def test_uint8_input_is_left_to_the_graph(new_input):
    spec = new_input(dtype="uint8", normalize_in_graph=True)
    image = _random_image((40, 40))
    tensor, geometry = Preprocessor(spec)(image)
    assert tensor.dtype == np.uint8 and geometry.resized_size == (48, 48)
    resized = cv2.resize(image, (48, 48), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(tensor[0, :, :, :48], resized[:, :, ::-1].transpose(2, 0, 1))
    # The mean, to the nearest grey level: normalised, at most half a level from a padding of 0.
    np.testing.assert_array_equal(tensor[0, :, 0, 63], [124, 116, 104])


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_other_arrays_are_refused(image, new_input):
    with pytest.raises(ValueError, match=r"expected uint8 \(height, width, 3\)"):
        Preprocessor(new_input())(image)


def test_a_view_is_as_good_as_a_copy(new_input):
    image = _random_image((61, 83))
    spec = new_input()
    view = image[::-1, ::-1]
    np.testing.assert_array_equal(Preprocessor(spec)(view)[0], Preprocessor(spec)(view.copy())[0])
