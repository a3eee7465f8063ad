"""From a detector's outputs to objects in the image: letterbox, thresholds, masks, matching."""

import tracemalloc

import numpy as np
import pytest

from deploy.detections import (
    Detections,
    agreement_share,
    box_iou,
    common_counts,
    match,
    pasted_mask,
    read_detections,
)
from deploy.preprocess import Geometry
from deploy.specs import OutputSpec

# An image of 100 x 200 (H x W) in an input of 64 x 64: scaled by 0.32 to 32 x 64, padding below.
GEOMETRY = Geometry((100, 200), (32, 64))


def spec(kind, shape, dtype="float32"):
    return OutputSpec(
        name=f"the_{kind}", shape=shape, dtype=dtype, kind=kind, stride=8 if kind == "mask_logits" else 1, meaning=""
    )


def outputs(boxes, scores, labels, number=None, checks=(1.0, 0.0), **masks):
    arrays = {
        "boxes": np.array([boxes], np.float32),
        "scores": np.array([scores], np.float32),
        "labels": np.array([labels], np.int64),
        "number": np.array([len(scores) if number is None else number], np.int64),
        "checks": np.array([checks], np.float32),
        **{kind: np.array([value], np.float32) for kind, value in masks.items()},
    }
    specs = [spec(kind, array.shape, str(array.dtype)) for kind, array in arrays.items()]
    return {f"the_{kind}": array for kind, array in arrays.items()}, specs


def read(arrays_and_specs, score=0.0, **options):
    return read_detections(*arrays_and_specs, GEOMETRY, score, **options)


def test_boxes_go_back_into_the_image_and_are_cut_to_it():
    boxes = [[3.2, 6.4, 32, 16], [48, 16, 64, 64], [0, 0, 1, 1]]
    found = read(outputs(boxes, [0.9, 0.5, 0.0], [2, 0, 0], number=2))
    assert found.boxes.tolist() == pytest.approx(np.array([[10, 20, 100, 50], [150, 50, 200, 100]]), abs=1e-4)
    assert found.labels.tolist() == [2, 0] and found.masks is None and found.exact
    assert len(read(outputs(boxes, [0.9, 0.5, 0.0], [2, 0, 0], number=2), score=0.6)) == 1


def test_what_the_graph_could_not_finish_is_said():
    assert not read(outputs([[0, 0, 1, 1]], [0.5], [0], checks=(0.0, 0.0))).exact
    assert not read(outputs([[0, 0, 1, 1]], [0.5], [0], checks=(1.0, 3.0))).exact


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="found 3 objects, but has room for 1"):
        read(outputs([[0, 0, 1, 1]], [0.5], [0], number=3))
    with pytest.raises(ValueError, match="boxes hold NaN"):
        read(outputs([[0, np.nan, 1, 1]], [0.5], [0]))


def bilinear(probabilities, box, size):
    """The mask of a box in an image, written out: half-pixel centres, zeros around."""
    cells = probabilities.shape[0]
    result = np.zeros(size)
    for y in range(size[0]):
        for x in range(size[1]):
            v = (y + 0.5 - box[1]) / (box[3] - box[1]) * cells - 0.5
            u = (x + 0.5 - box[0]) / (box[2] - box[0]) * cells - 0.5
            for i in (int(np.floor(v)), int(np.floor(v)) + 1):
                for j in (int(np.floor(u)), int(np.floor(u)) + 1):
                    if 0 <= i < cells and 0 <= j < cells:
                        result[y, x] += probabilities[i, j] * (1 - abs(v - i)) * (1 - abs(u - j))
    return result


@pytest.mark.parametrize(
    "box", [(3.3, 5.1, 22.7, 30.4), (-4.0, -3.0, 18.0, 11.5), (10.2, 8.0, 11.1, 9.9), (0, 0, 40, 36)]
)
def test_masks_of_boxes_are_pasted_bilinearly(box):
    probabilities = np.random.default_rng(0).random((7, 7))
    target = pasted_mask(probabilities, np.array(box, np.float32), (36, 40), 0.5)
    expected = bilinear(probabilities, box, target.shape)
    sure = np.abs(expected - 0.5) > 1e-4
    assert (target == (expected >= 0.5))[sure].all() and sure.mean() > 0.99
    assert not pasted_mask(probabilities, np.array([5, 5, 5, 9], np.float32), (36, 40), 0.5).any(), "without area"


def test_masks_come_in_the_size_of_the_image():
    masks = np.zeros((2, 4, 4), np.float32)
    masks[0] = 0.9
    found = read(outputs([[3.2, 6.4, 32, 16]] * 2, [0.9, 0.8], [0, 1], box_masks=masks))
    assert len(found.masks) == 2 and found.masks[0].shape == (100, 200)
    assert found.masks[0][22:48, 14:96].all() and not found.masks[0][:19].any() and not found.masks[1].any()
    assert (found.masks[-2] == found.masks[0]).all() and len(found.masks[:5]) == 2
    with pytest.raises(IndexError):
        found.masks[2]
    logits = np.full((1, 8, 8), -4.0, np.float32)
    logits[0, :4, 4:] = 4.0  # the right half of the image's part of the input
    found = read(outputs([[32, 0, 64, 32]], [0.9], [0], mask_logits=logits))
    assert found.masks[0][:, 120:].all() and not found.masks[0][:, :80].any()


def test_a_hundred_masks_of_a_large_photo_are_not_in_memory_at_once():
    many = outputs([[0, 0, 64, 32]] * 100, [0.9] * 100, [0] * 100, box_masks=np.ones((100, 4, 4), np.float32))
    tracemalloc.start()
    found = read_detections(*many, Geometry((3000, 4000), (32, 64)), 0.5)
    assert sum(int(mask[1500, 2000]) for mask in found.masks) == 100
    assert tracemalloc.get_traced_memory()[1] < 0.3e9, "one is 12 MB, and its floats 48"
    tracemalloc.stop()


def detections(boxes, scores, labels):
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.array(labels, np.int64), None, True
    )


def test_matching_counts_each_object_once_and_both_ways():
    first = detections([[0, 0, 10, 10], [0, 0, 10, 10], [20, 20, 30, 30]], [0.9, 0.9, 0.5], [0, 0, 1])
    second = detections([[0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]], [0.9, 0.5, 0.4], [0, 2, 1])
    found = match(first, second, iou=0.9, score_tolerance=0.01)
    assert (found.first, found.second, found.matched) == (3, 3, 1) and found.share == pytest.approx(1 / 3)
    assert match(first, first, 0.9, 0.0).share == 1
    nothing = detections([], [], [])
    assert match(nothing, nothing, 0.9, 0.01).share == 1 and match(first, nothing, 0.9, 0.01).share == 0
    far = detections([[0, 0, 10, 10]], [0.8], [0])
    assert match(far, detections([[0, 0, 10, 10]], [0.9], [0]), 0.9, 0.05).matched == 0
    assert box_iou(far.boxes, np.array([[0, 0, 10, 5]], np.float32)).item() == 0.5


def test_agreement_leaves_out_the_doubtful_and_takes_the_worse_side():
    boxes = np.array([[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10], [60, 0, 70, 10]], np.float32)
    shifted = boxes + np.array([[1, 0, 1, 0], [0, 0, 0, 0], [3, 0, 3, 0], [0, 0, 0, 0]], np.float32)  # IoU 0.82, 0.54
    first = Detections(boxes, np.array([0.9, 0.36, 0.8, 0.3], np.float32), np.array([0, 1, 0, 0]), None, True)
    second = Detections(shifted, np.array([0.5, 0.26, 0.8, 0.9], np.float32), np.array([0, 1, 0, 0]), None, True)
    counts = common_counts(first, second)
    assert counts.tolist() == [[3, 2], [3, 2]]  # the third is too far; 0.36 has its 0.26, 0.9 its 0.3
    other = Detections(boxes[:1], np.array([0.9], np.float32), np.array([1]), None, True)
    assert common_counts(first, other).tolist() == [[3, 0], [1, 0]]
    assert agreement_share(counts) == pytest.approx(2 / 3)
    assert agreement_share(counts + common_counts(other, other)) == pytest.approx(3 / 4)
    assert agreement_share(np.zeros((2, 2), np.int64)) == 1
