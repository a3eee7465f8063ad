"""Static proposals, box stages and masks against MMDetection's own prediction of whole two-stage detectors."""

import pytest
import torch
from mmdet.structures import DetDataSample

from deploy.preprocess import Geometry
from deploy.specs import InputSpec
from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.export.detection.candidates import Limits
from vitdense.export.detection.parity import eager_detections
from vitdense.export.detection.two_stage import BoxAndMaskHead, Proposals
from vitdense.export.lowering import lower
from vitdense.export.onnx_export import export_onnx
from vitdense.export.parity import check_detections
from vitdense.export.spec import output_specs
from vitdense.export.wrappers import wrap

IMAGE, VALID = (160, 224), [[160, 224], [131, 224]]  # the second image is padded below
CASCADE = "configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py"
CONFIGS = {
    "Mask R-CNN": "configs/vitdet_coco.py",
    "edge Mask R-CNN": "configs/edge/vits_mask-rcnn_coco-512.py",
    "Faster R-CNN": "configs/fixtures/vit48_faster-rcnn_bccd.py",
    "detectron2's cascade": CASCADE,
    "MMDetection's cascade": CASCADE,
}


def build(name):
    """The detector at a small width, with weights large enough for boxes of all scores."""
    cfg = load_config(CONFIGS[name])
    backbone = cfg.model.backbone
    backbone.update(arch=dict(embed_dims=32, depth=1, num_heads=2), global_attn_indexes=(), init_cfg=None)
    backbone.update(pretrain_img_size=backbone.patch_size * 8)
    cfg.model.neck.in_channels = 32
    for part in (cfg.model.rpn_head, cfg.model.roi_head.get("mask_head") or {}):
        part.pop("norm_cfg", None)
    if name == "MMDetection's cascade":
        cfg.model.roi_head.type = "CascadeRoIHead"
        del cfg.model.roi_head.mask_head, cfg.model.roi_head.mask_roi_extractor
    cfg.model.test_cfg.rpn.update(nms_pre=150, max_per_img=60)
    cfg.model.test_cfg.rcnn.update(score_thr=0.015, max_per_img=40)
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for parameter in model.rpn_head.parameters():
            parameter.normal_(0, 0.05)
        for parameter_name, parameter in model.roi_head.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, (2 / parameter[0].numel()) ** 0.5)  # keeps the size of what passes a ReLU
            elif "fc_reg" in parameter_name:
                parameter.normal_(0, 0.3)
    return model, cfg.model.test_cfg


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_detections_as_mmdetections(name):
    model, test_cfg = build(name)
    rpn, rcnn = test_cfg.rpn, test_cfg.rcnn
    images = torch.randn(2, 3, *IMAGE)
    sizes = [tuple(size) for size in VALID]
    metas = [dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0)) for size in sizes]
    samples = [DetDataSample(metainfo=meta) for meta in metas]
    valid = torch.tensor(VALID)
    with torch.no_grad():
        features = model.extract_feat(images)
        sizes = [tuple(feature.shape[-2:]) for feature in features]
        wanted_proposals = model.rpn_head.predict(features, samples, rescale=False)
        limits = Limits(0.0, rpn.nms.iou_threshold, rpn.nms_pre, detections=rpn.max_per_img, rounds=32)
        proposals, objectness, converged = Proposals(model.rpn_head, sizes, limits)(features, valid)
        assert converged.tolist() == [1, 1]
        for i, wanted in enumerate(wanted_proposals):
            count = len(wanted)
            assert (objectness[i] > 0).sum() == count and count >= 20
            assert torch.allclose(proposals[i, :count], wanted.bboxes, atol=1e-3)
        limits = Limits(rcnn.score_thr, rcnn.nms.iou_threshold, candidates=1500, detections=40, rounds=32, min_size=-1)
        found, masks = BoxAndMaskHead(model.roi_head, limits)(features, proposals, objectness, valid)
        expected = model.roi_head.predict(features, wanted_proposals, samples, rescale=False)
    assert found.converged.tolist() == [1, 1] and found.overflow.tolist() == [0, 0]
    # Random heads are no smooth functions: each stage of a cascade makes a rounding error of its boxes larger.
    slack = 300 if "cascade" in name else 1
    for i, wanted in enumerate(expected):
        count = len(wanted)
        assert found.number[i] == count and count >= 10
        boxes, scores, labels = (getattr(found.candidates, key)[i, :count] for key in ("boxes", "scores", "labels"))
        assert torch.allclose(scores, wanted.scores, atol=1e-5 * slack)
        assert torch.equal(labels, wanted.labels)
        assert torch.allclose(boxes, wanted.bboxes, atol=1e-3 * slack)
    if masks is None:
        assert name in ("Faster R-CNN", "MMDetection's cascade")
        return
    with torch.no_grad():
        rois = torch.cat([torch.cat([torch.full((len(w), 1), float(i)), w.bboxes], 1) for i, w in enumerate(expected)])
        logits = model.roi_head._mask_forward(features, rois)["mask_preds"]
    labels = torch.cat([wanted.labels for wanted in expected])
    wanted_masks = logits[torch.arange(len(labels)), labels].sigmoid()
    found_masks = torch.cat([masks[i, : len(wanted)] for i, wanted in enumerate(expected)])
    assert torch.allclose(found_masks, wanted_masks, atol=1e-4 * slack)


def test_what_has_no_static_form_is_refused():
    model, _ = build("Faster R-CNN")
    limits = Limits(0.02, 0.5)
    with pytest.raises(ValueError, match="a Shared2FCBBoxHead cannot be exported; an RPNHead"):
        Proposals(model.roi_head.bbox_head, [], limits)
    model.roi_head.bbox_head.bbox_coder.clip_border = False
    with pytest.raises(ValueError, match="without clip_border"):
        BoxAndMaskHead(model.roi_head, limits)


@pytest.mark.parametrize("name", ["edge Mask R-CNN", "Faster R-CNN"])
def test_the_exported_file_finds_the_same(name, tmp_path):
    model, _ = build(name)
    images = torch.randn(2, 3, *IMAGE)
    images[1, :, 131:] = 0  # padded below
    tensors = [image[None].numpy() for image in images]
    geometries = [Geometry(tuple(size), tuple(size)) for size in VALID]
    expected = eager_detections(model, tensors, geometries)
    graph = wrap(lower(model, IMAGE), "auto", IMAGE, candidates=1500)
    assert graph.task == ("instance_segmentation" if "Mask" in name else "detection")
    export_onnx(graph, IMAGE, tmp_path / "model.onnx")
    with torch.no_grad():
        arrays = [output.numpy() for output in graph(images[:1])]
    specs = output_specs(graph.outputs(len(arrays)), arrays, IMAGE, model.backbone.patch_size)
    inputs = InputSpec("image", (1, 3, *IMAGE), "float32", "RGB", (0.0,) * 3, (1.0,) * 3, False, "letterbox")
    for runtime in ("onnxruntime", "openvino"):
        options = dict(geometries=geometries, mask=0.5, spec=inputs, outputs=specs, threads=1)
        parity = check_detections(tmp_path / "model.onnx", runtime, tensors, expected, **options)
        assert parity.detections.matched >= 20, parity
