"""The federated loss against an explicit sum, and inside a box head of MMDetection."""

import json

import pytest
import torch
from mmdet.registry import MODELS

import vitdense  # noqa: F401

COUNTS = [4.0, 9.0, 1.0, 16.0, 0.0, 25.0]


def build(**options):
    return MODELS.build(dict(type="vitdense.FederatedLoss", num_classes=6, **options))


def test_equals_the_explicit_sum():
    loss = build(image_counts=COUNTS, num_federated=2, loss_weight=0.5)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, generator=generator)
    labels = torch.tensor([6, 2, 0, 6, 2])  # two classes occur, so none is drawn
    weights = torch.tensor([1.0, 1.0, 0.5, 0.0, 1.0])
    total = 0.0
    for row in range(5):
        for cls in (0, 2):
            p = 1 / (1 + (-scores[row, cls].double()).exp())
            total -= weights[row] * (p.log() if labels[row] == cls else (1 - p).log())
    assert loss(scores, labels, weights, avg_factor=4.0).item() == pytest.approx(0.5 * total.item() / 4, rel=1e-6)
    all_classes = build(image_counts=COUNTS, num_federated=6)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        scores[:, [0, 1, 2, 3, 5]], torch.nn.functional.one_hot(labels, 7)[:, [0, 1, 2, 3, 5]].float(), reduction="sum"
    )  # a class of no image is never drawn
    assert all_classes(scores, labels).item() == pytest.approx(expected.item() / 5, rel=1e-6)


def test_negatives_are_drawn_by_the_root_of_their_frequency():
    loss = build(image_counts=COUNTS, num_federated=3)  # one that occurs, background, and one that is drawn
    labels = torch.tensor([1, 6, 1])
    torch.manual_seed(0)
    seen = torch.zeros(6)
    for _ in range(4000):
        classes = loss.federated_classes(labels)
        assert len(classes) == 2 and classes[0] == 1
        seen[classes[1]] += 1
    share = torch.tensor([2.0, 0.0, 1.0, 4.0, 0.0, 5.0]) / 12
    torch.testing.assert_close(seen / 4000, share, atol=0.025, rtol=0)


def test_unused_classes_get_no_gradient_and_background_no_channel():
    loss = build(image_counts=COUNTS, num_federated=1)
    scores = torch.randn(4, 7, requires_grad=True)
    loss(scores, torch.tensor([3, 6, 3, 6])).backward()
    assert (scores.grad[:, 3] != 0).all() and scores.grad[:, [0, 1, 2, 4, 5, 6]].eq(0).all()


def test_counts_come_from_an_lvis_file(tmp_path):
    path = tmp_path / "lvis.json"
    categories = [dict(id=i + 1, name=str(i), image_count=count) for i, count in enumerate(COUNTS)]
    path.write_text(json.dumps(dict(categories=categories[::-1])))
    assert torch.equal(build(ann_file=str(path), num_federated=3).probability, torch.tensor(COUNTS) ** 0.5)
    path.write_text(json.dumps(dict(categories=[dict(id=1, name="a")])))
    with pytest.raises(ValueError, match="no image_count"):
        _ = build(ann_file=str(path), num_federated=3).probability


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes either image_counts"),
        (dict(image_counts=COUNTS, ann_file="x"), "takes either image_counts"),
        (dict(image_counts=COUNTS[:3]), "must be 6 numbers"),
        (dict(image_counts=COUNTS, num_federated=7), "num_federated=7 must lie in 1..6"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        build(**{"num_federated": 2, **options})


def test_inside_a_box_head():
    head = MODELS.build(
        dict(
            type="Shared2FCBBoxHead",
            in_channels=4,
            fc_out_channels=8,
            roi_feat_size=3,
            num_classes=6,
            loss_cls=dict(type="vitdense.FederatedLoss", num_classes=6, image_counts=COUNTS, num_federated=3),
        )
    )
    scores, _ = head(torch.randn(5, 4, 3, 3))
    assert scores.shape == (5, 7)
    labels = torch.tensor([0, 6, 2, 6, 5])
    losses = head.loss(scores, None, None, labels, torch.ones(5), None, None)
    assert losses["loss_cls"].requires_grad and 0 <= losses["acc_classes"] <= 100
