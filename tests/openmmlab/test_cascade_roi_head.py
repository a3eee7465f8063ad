"""The cascade against its description in detectron2, computed by hand from the heads' own outputs."""

import pytest
import torch
from mmdet.models.layers import multiclass_nms
from mmdet.structures.bbox import bbox2roi
from mmengine.structures import InstanceData

from vitdense.config import load_config
from vitdense.engine.build import build_model

STRIDES = (4, 8, 16, 32)
SHAPE = (96, 160)


@pytest.fixture(scope="module")
def roi_head():
    cfg = load_config("configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py")
    cfg.model.backbone.arch = dict(embed_dims=32, depth=2, num_heads=2)
    cfg.model.backbone.global_attn_indexes, cfg.model.neck.in_channels = (1,), 32
    cfg.model.test_cfg.rcnn.score_thr = 0.02
    torch.manual_seed(0)
    head = build_model(cfg).roi_head.eval()
    with torch.no_grad():
        for stage in head.bbox_head:  # as initialised all classes score alike
            stage.fc_cls.weight.normal_(std=0.2)
            stage.fc_reg.weight.normal_(std=0.05)
    return head


@pytest.fixture
def features():
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(2, 256, SHAPE[0] // s, SHAPE[1] // s, generator=generator) for s in (*STRIDES, 64))


def proposals(count):
    corner = torch.rand(count, 2, generator=torch.Generator().manual_seed(count)) * 50
    boxes = torch.cat([corner, corner + 30], dim=1)
    return InstanceData(bboxes=boxes, scores=torch.ones(count), labels=torch.zeros(count, dtype=torch.long))


METAS = [dict(img_shape=SHAPE, ori_shape=SHAPE, scale_factor=(1.0, 1.0))] * 2


@torch.no_grad()
def test_probabilities_are_averaged_and_boxes_are_the_last_stage_s(roi_head, features):
    given = [proposals(7), proposals(5)]
    found = roi_head.predict_bbox(features, METAS, given, roi_head.test_cfg)
    for index, count in enumerate((7, 5)):
        single = tuple(level[index : index + 1] for level in features)
        boxes, probabilities = proposals(count).bboxes, []
        for stage in range(3):
            crops = roi_head.bbox_roi_extractor[stage](single[:4], bbox2roi([boxes]))
            scores, deltas = roi_head.bbox_head[stage](crops)
            probabilities.append(scores.softmax(-1))
            boxes = roi_head.bbox_head[stage].bbox_coder.decode(boxes, deltas, max_shape=SHAPE)
        mean = torch.stack(probabilities).mean(0)
        expected, labels = multiclass_nms(boxes, mean, 0.02, dict(type="nms", iou_threshold=0.5), 100)
        assert len(expected) > 20
        assert torch.equal(found[index].labels, labels)
        torch.testing.assert_close(found[index].bboxes, expected[:, :4], rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(found[index].scores, expected[:, 4], rtol=1e-4, atol=1e-6)
        logits = torch.stack([p.log() for p in probabilities]).mean(0).softmax(-1)
        assert (logits - mean).abs().max() > 1e-3  # so MMDetection's average would be noticed


@torch.no_grad()
def test_an_image_without_proposals(roi_head, features):
    found = roi_head.predict(features, [proposals(3), proposals(0)], samples(gt=False), rescale=True)
    assert len(found[1]) == 0 and len(found[0].masks) == len(found[0]) > 0 and found[0].masks.shape[1:] == SHAPE


@torch.no_grad()
def test_tensor_mode(roi_head, features):
    scores, deltas, masks = roi_head.forward(features, [proposals(3), proposals(2)], samples(gt=False))
    assert [tuple(value.shape) for value in scores] == [(3, 81), (2, 81)]
    assert [tuple(value.shape) for value in deltas] == [(3, 4), (2, 4)] and tuple(masks.shape) == (5, 80, 28, 28)


def samples(gt=True):
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    result = []
    for meta in METAS:
        sample = DetDataSample(metainfo=meta)
        if gt:
            boxes = proposals(4).bboxes[:2]
            masks = BitmapMasks(torch.ones(2, *SHAPE).byte().numpy(), *SHAPE)
            sample.gt_instances = InstanceData(bboxes=boxes, labels=torch.tensor([3, 7]), masks=masks)
        result.append(sample)
    return result


def test_one_mask_head_trains_on_the_first_stage_and_gradients_are_divided(roi_head, features):
    features = tuple(level.clone().requires_grad_() for level in features)
    rois = bbox2roi([proposals(4).bboxes])
    scores = roi_head._bbox_forward(1, features, rois)["cls_score"]
    (scaled,) = torch.autograd.grad(scores.square().sum(), features[0])
    crops = roi_head.bbox_roi_extractor[1](features[:4], rois)
    (plain,) = torch.autograd.grad(roi_head.bbox_head[1](crops)[0].square().sum(), features[0])
    torch.testing.assert_close(scaled, plain / 3)
    losses = roi_head.loss(features, [proposals(40), proposals(40)], samples())
    assert [name for name in losses if "mask" in name] == ["s0.loss_mask"]
    assert {f"s{i}.loss_{kind}" for i in range(3) for kind in ("cls", "bbox")} <= set(losses)
    sum(value for name, value in losses.items() if "loss" in name).backward()
    assert all(parameter.grad is not None for parameter in roi_head.parameters())


@pytest.mark.parametrize("change", ["masks", "loss"])
def test_what_this_cascade_cannot_average_is_refused(change):
    cfg = load_config("configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py")
    if change == "masks":
        cfg.model.roi_head.mask_head = [cfg.model.roi_head.mask_head] * 3
    else:
        cfg.model.roi_head.bbox_head[1].loss_cls = dict(type="SeesawLoss", num_classes=80)
    with torch.device("meta"), pytest.raises(ValueError, match="one mask head|not SeesawLoss"):
        build_model(cfg)
