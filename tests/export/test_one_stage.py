"""Static post-processing of one-stage heads against MMDetection's own, on random maps with many overlapping boxes."""

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope

from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.export.detection.candidates import Limits
from vitdense.export.detection.graph import DetectorGraph
from vitdense.export.detection.one_stage import DenseHead, dynamic_masks

SIZES, VALID = ((20, 28), (10, 14), (5, 7)), [[160, 224], [131, 224]]  # the second image is padded below
TEST_CFG = dict(nms_pre=200, min_bbox_size=0, score_thr=0.3, nms=dict(type="nms", iou_threshold=0.6), max_per_img=50)
SIGMOID = dict(type="QualityFocalLoss", use_sigmoid=True, beta=2.0, loss_weight=1.0)
SQUARE = dict(type="AnchorGenerator", ratios=[1.0], octave_base_scale=4, scales_per_octave=1, strides=[8, 16, 32])
POINTS = dict(type="MlvlPointGenerator", offset=0, strides=[8, 16, 32])
DELTAS = dict(type="DeltaXYWHBBoxCoder", target_means=[0.1, 0.0, 0.0, 0.1], target_stds=[0.1, 0.1, 0.2, 0.2])
RTMDET = dict(
    anchor_generator=POINTS,
    bbox_coder=dict(type="DistancePointBBoxCoder"),
    loss_cls=SIGMOID,
    loss_bbox=dict(type="GIoULoss", loss_weight=2.0),
    norm_cfg=dict(type="BN"),
    share_conv=True,
    pred_kernel_size=1,
)
HEADS = {
    "GFL": dict(type="GFLHead", anchor_generator=SQUARE, loss_cls=SIGMOID, norm_cfg=None, reg_max=8),
    "ATSS": dict(type="ATSSHead", anchor_generator=SQUARE, bbox_coder=DELTAS, norm_cfg=None),
    "RetinaNet": dict(
        type="RetinaHead",
        anchor_generator={**SQUARE, "ratios": [0.5, 1.0, 2.0], "scales_per_octave": 2},
        bbox_coder=DELTAS,
        loss_cls=dict(type="FocalLoss", use_sigmoid=True),
    ),
    "RTMDet": dict(type="RTMDetSepBNHead", **RTMDET),
    "RTMDet-Ins": dict(type="RTMDetInsSepBNHead", loss_mask=dict(type="DiceLoss", loss_weight=2.0, eps=5e-6), **RTMDET),
}


def build(name):
    init_default_scope("mmdet")
    torch.manual_seed(0)
    test_cfg = {**TEST_CFG, "mask_thr_binary": 0.5}
    common = dict(num_classes=3, in_channels=16, feat_channels=16, stacked_convs=1, test_cfg=ConfigDict(test_cfg))
    head = MODELS.build({**HEADS[name], **common}).eval()
    with torch.no_grad():
        for parameter_name, parameter in head.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.1)
            elif "bias" in parameter_name:
                parameter.normal_(0, 0.1)
    return head


def maps(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 16, *size, generator=generator) for size in SIZES]


@pytest.mark.parametrize("name", HEADS)
def test_the_same_boxes_as_mmdetections(name):
    head = build(name)
    limits = Limits(score_threshold=0.3, iou_threshold=0.6, per_level=200, candidates=600, detections=50, rounds=64)
    static = DenseHead(head, SIZES, limits)
    metas = [dict(img_shape=tuple(size), ori_shape=tuple(size), scale_factor=(1.0, 1.0)) for size in VALID]
    for seed in range(3):
        features = maps(seed)
        with torch.no_grad():
            expected = head.predict_by_feat(*head(features), batch_img_metas=metas, rescale=False)
            found, mask_features = static([feature.clone() for feature in features], torch.tensor(VALID))
        assert found.converged.tolist() == [1, 1] and found.overflow.tolist() == [0, 0]
        for i, wanted in enumerate(expected):
            count = found.number[i].item()
            assert count == len(wanted) and count >= 10
            boxes, scores, labels = (getattr(found.candidates, key)[i] for key in ("boxes", "scores", "labels"))
            assert torch.allclose(scores[:count], wanted.scores, atol=1e-6)
            assert torch.equal(labels[:count], wanted.labels)
            assert torch.allclose(boxes[:count], wanted.bboxes, atol=1e-3)
            assert not scores[count:].any() and not boxes[count:].any() and not labels[count:].any()
        if mask_features is not None:
            grid = head.prior_generator.single_level_grid_priors(SIZES[0], 0, device="cpu")
            logits = dynamic_masks(mask_features, found.candidates.extra, head, grid)
            enlarged = torch.nn.functional.interpolate(logits, scale_factor=8, mode="bilinear").sigmoid() > 0.5
            for i, wanted in enumerate(expected):
                equal = enlarged[i, : len(wanted)] == wanted.masks
                assert equal.float().mean() > 0.9999 and 0.01 < wanted.masks.float().mean() < 0.99


def test_what_does_not_fit_is_counted():
    static = DenseHead(build("GFL"), SIZES, Limits(0.3, 0.6, per_level=200, candidates=20, rounds=1))
    with torch.no_grad():
        found, _ = static(maps(0), torch.tensor(VALID))
    assert found.overflow.min() > 0


def test_other_heads_and_limits_are_refused():
    with pytest.raises(ValueError, match="a Linear cannot be exported yet; RetinaHead"):
        DenseHead(torch.nn.Linear(1, 1), SIZES, Limits(0.3, 0.6))
    with pytest.raises(ValueError, match=r"candidates=4000 must lie in 1..3839"):
        Limits(0.3, 0.6, candidates=4000)


def test_what_a_static_graph_cannot_do_is_refused():
    for changes, message in (
        (dict(min_bbox_size=4), "min_bbox_size=4 is in pixels of the original image"),
        (dict(nms=dict(type="soft_nms", iou_threshold=0.5)), "a static graph knows dict"),
        (dict(max_per_img=None), "test_cfg has no max_per_img"),
    ):
        model = build_model(load_config("configs/fixtures/vit48_gfl_bccd.py"))
        model.test_cfg.update(changes)
        with pytest.raises(ValueError, match=message):
            DetectorGraph(model, (64, 64))
