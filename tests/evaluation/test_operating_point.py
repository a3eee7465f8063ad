"""Precision and recall at a threshold, against counts made by hand."""

import pytest
import torch

from vitdense.evaluation.operating_point import OperatingPointMetric


def sample(detections, truths, crowds=()):
    """Detections (box, score, label), ground truths and crowds (box, label) as MMDetection hands them over."""

    def instances(rows):
        boxes = torch.tensor([row[0] for row in rows], dtype=torch.float32).reshape(-1, 4)
        return dict(bboxes=boxes, labels=torch.tensor([row[-1] for row in rows], dtype=torch.long))

    found = instances(detections)
    found["scores"] = torch.tensor([row[1] for row in detections])
    return dict(pred_instances=found, gt_instances=instances(truths), ignored_instances=instances(crowds))


A, A_SHIFTED, B, FAR = (0, 0, 10, 10), (0, 0, 10, 8), (20, 20, 40, 40), (60, 60, 70, 70)


def score(*samples, **options):
    metric = OperatingPointMetric(**options)
    metric.process(None, samples)
    return metric.compute_metrics(metric.results)


def test_counts_by_hand():
    found = score(
        # Two detections of one object (the better one counts), one of another class, one too low, one on a crowd.
        sample(
            [(A, 0.9, 0), (A_SHIFTED, 0.8, 0), (B, 0.7, 1), (B, 0.2, 0), (FAR, 0.6, 2)],
            [(A, 0), (B, 0)],
            [(FAR, 2)],
        ),
        sample([], [(A, 1)]),
        sample([(A, 0.5, 1)], []),
    )
    assert (found["detections"], found["matched"], found["ground_truths"]) == (4, 1, 3)
    assert found["precision"] == pytest.approx(1 / 4) and found["recall"] == pytest.approx(1 / 3)
    assert found["f1"] == pytest.approx(2 / 7)


def test_a_small_box_inside_a_crowd_counts_neither_way():
    inside, half, mostly_outside = (30, 30, 40, 40), (95, 0, 105, 10), (98, 0, 108, 10)
    detections = [(inside, 0.9, 0), (half, 0.8, 0), (mostly_outside, 0.7, 0), (inside, 0.6, 1)]
    found = score(sample(detections, [], [((0, 0, 100, 100), 0)]))
    assert found["detections"] == 2  # the one outside, and the one of another class


def test_thresholds_are_those_given():
    image = sample([(A_SHIFTED, 0.4, 0)], [(A, 0)])  # IoU 0.8
    assert score(image, iou_thr=0.8)["matched"] == 1
    assert score(image, iou_thr=0.81)["matched"] == 0
    assert score(image, score_thr=0.41)["detections"] == 0
    with pytest.raises(ValueError, match="score_thr=0"):
        OperatingPointMetric(score_thr=0.0)


def test_ground_truth_has_to_be_there():
    image = sample([], [])
    del image["gt_instances"]
    with pytest.raises(ValueError, match="LoadAnnotations in the test pipeline, after Resize"):
        score(image)


def test_nothing_at_all_is_zero():
    assert score(sample([], []))["f1"] == 0
