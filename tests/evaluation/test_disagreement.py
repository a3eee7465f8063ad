"""How far predictions moved."""

from dataclasses import replace

import numpy as np
import pytest

from deploy.detections import Detections
from deploy.predictor import Prediction
from vitdense.evaluation.disagreement import disagreement


def objects(boxes, scores, labels):
    found = Detections(
        np.asarray(boxes, np.float32).reshape(-1, 4),
        np.asarray(scores, np.float32),
        np.asarray(labels, np.int64),
        masks=None,
        exact=True,
    )
    return Prediction({}, None, {}, detections=found)


def pixels(values):
    return Prediction({}, None, {}, class_map=np.asarray(values))


TWO = objects([[0, 0, 10, 10], [20, 20, 30, 30]], [0.8, 0.4], [0, 1])


def test_nothing_changed():
    assert disagreement([TWO], [TWO]) == 0
    assert disagreement([objects([], [], [])], [objects([], [], [])]) == 0


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (objects([], [], []), 1.2 / 1.2),
        (objects([[0, 0, 10, 10], [20, 20, 30, 30]], [0.7, 0.4], [0, 1]), 0.1 / 1.2),
        (objects([[20, 20, 30, 30], [0, 0, 10, 8]], [0.4, 0.8], [1, 0]), 0.8 * 0.2 / 1.2),
        (objects([[0, 0, 10, 10], [20, 20, 30, 30]], [0.8, 0.4], [0, 0]), (0.4 + 0.4) / 1.2),
        (objects([[0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 9, 10]], [0.8, 0.4, 0.3], [0, 1, 0]), 0.3 / 1.2),
        (objects([[0, 0, 10, 4], [20, 20, 30, 30]], [0.8, 0.4], [0, 1]), (0.8 + 0.8) / 1.2),
    ],
    ids=["lost", "score", "box and order", "class", "new", "too far"],
)
def test_objects(after, expected):
    assert disagreement([TWO], [after]) == pytest.approx(expected, abs=1e-6)


def test_masks_count_where_boxes_stay():
    def with_mask(rows):
        mask = np.zeros((1, 100, 100), bool)
        mask[0, :rows] = True
        one = objects([[0, 0, 100, 100]], [0.5], [0]).detections
        return Prediction({}, None, {}, detections=replace(one, masks=mask))

    assert disagreement([with_mask(80)], [with_mask(80)]) == 0
    assert disagreement([with_mask(80)], [with_mask(60)]) == pytest.approx(0.25)


def test_images_add_up():
    assert disagreement([TWO, TWO], [TWO, objects([], [], [])]) == pytest.approx(0.5)
    assert disagreement([pixels([[0, 1], [2, 3]])] * 2, [pixels([[0, 1], [2, 2]]), pixels([[0, 1], [2, 3]])]) == 1 / 8


def test_new_objects_where_there_were_none():
    assert disagreement([objects([], [], [])], [TWO]) == 1


def test_features_have_nothing_to_compare():
    with pytest.raises(ValueError, match="features"):
        disagreement([Prediction({}, None, {})], [Prediction({}, None, {})])
