"""detectron2's ViTDet detectors: published names and shapes into the configs of this project."""

import pickle
import re
from pathlib import Path

import pytest
import torch

from vitdense.checkpoints import load_trained
from vitdense.checkpoints.detectors import convert_detectron2_detector
from vitdense.config import load_config
from vitdense.engine.build import build_model

ROOT = Path(__file__).resolve().parents[2]
DIMS, DEPTH = 32, 3


def detectron2_state(cascade):
    """Names and shapes as detectron2's projects/ViTDet builds them (02b5c4e), narrow, every value random."""
    shapes = {
        "backbone.net.pos_embed": (1, 197, DIMS),
        "backbone.net.patch_embed.proj.weight": (DIMS, 3, 16, 16),
        "backbone.net.patch_embed.proj.bias": (DIMS,),
    }

    def norm(name, width):
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    def layer(name, *shape):
        shapes.update({f"{name}.weight": shape, f"{name}.bias": (shape[0],)})

    for i in range(DEPTH):
        block = f"backbone.net.blocks.{i}"
        norm(f"{block}.norm1", DIMS), norm(f"{block}.norm2", DIMS)
        layer(f"{block}.attn.qkv", 3 * DIMS, DIMS), layer(f"{block}.attn.proj", DIMS, DIMS)
        layer(f"{block}.mlp.fc1", 4 * DIMS, DIMS), layer(f"{block}.mlp.fc2", DIMS, 4 * DIMS)
        size = 127 if i == 1 else 27
        shapes.update({f"{block}.attn.rel_pos_h": (size, 16), f"{block}.attn.rel_pos_w": (size, 16)})

    def conv(name, out, inner, kernel):  # detectron2's Conv2d with its norm inside and no bias
        shapes[f"{name}.weight"] = (out, inner, kernel, kernel)
        norm(f"{name}.norm", out)

    half, quarter = DIMS // 2, DIMS // 4
    shapes.update({"backbone.simfp_2.0.weight": (DIMS, half, 2, 2), "backbone.simfp_2.0.bias": (half,)})
    norm("backbone.simfp_2.1", half)
    shapes.update({"backbone.simfp_2.3.weight": (half, quarter, 2, 2), "backbone.simfp_2.3.bias": (quarter,)})
    shapes.update({"backbone.simfp_3.0.weight": (DIMS, half, 2, 2), "backbone.simfp_3.0.bias": (half,)})
    for stage, first, width in ((2, 4, quarter), (3, 1, half), (4, 0, DIMS), (5, 1, DIMS)):
        conv(f"backbone.simfp_{stage}.{first}", 256, width, 1)
        conv(f"backbone.simfp_{stage}.{first + 1}", 256, 256, 3)
    rpn = "proposal_generator.rpn_head"
    layer(f"{rpn}.conv.conv0", 256, 256, 3, 3), layer(f"{rpn}.conv.conv1", 256, 256, 3, 3)
    layer(f"{rpn}.objectness_logits", 3, 256, 1, 1), layer(f"{rpn}.anchor_deltas", 12, 256, 1, 1)
    for stage in ("0.", "1.", "2.") if cascade else ("",):
        head, predictor = f"roi_heads.box_head.{stage}"[:-1], f"roi_heads.box_predictor.{stage}"[:-1]
        for i in range(1, 5):
            conv(f"{head}.conv{i}", 256, 256, 3)
        layer(f"{head}.fc1", 1024, 256 * 49)
        layer(f"{predictor}.cls_score", 81, 1024)
        layer(f"{predictor}.bbox_pred", 4 if cascade else 320, 1024)
    for i in range(1, 5):
        conv(f"roi_heads.mask_head.mask_fcn{i}", 256, 256, 3)
    shapes.update({"roi_heads.mask_head.deconv.weight": (256, 256, 2, 2), "roi_heads.mask_head.deconv.bias": (256,)})
    layer("roi_heads.mask_head.predictor", 80, 256, 1, 1)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def config(cascade):
    path = "configs/vitdet/vitdet-b_cascade-mask-rcnn_coco.py" if cascade else "configs/vitdet_coco.py"
    cfg = load_config(path)
    cfg.model.backbone.arch = dict(embed_dims=DIMS, depth=DEPTH, num_heads=2)
    cfg.model.backbone.global_attn_indexes, cfg.model.neck.in_channels = (1,), DIMS
    return cfg


@pytest.mark.parametrize("cascade", [False, True])
def test_every_weight_arrives_from_a_published_file(cascade, tmp_path):
    state = detectron2_state(cascade)
    path = tmp_path / "model_final.pkl"
    with open(path, "wb") as stream:
        arrays = {name: value.numpy() for name, value in state.items()} | {"pixel_mean": torch.ones(3).numpy()}
        pickle.dump({"model": arrays, "__author__": "someone"}, stream)
    model = build_model(config(cascade))
    trained = load_trained(model, path)
    assert trained.classes is None
    found = model.state_dict()
    assert torch.equal(found["backbone.pos_embed.weight"], state["backbone.net.pos_embed"][:, 1:])
    known = {
        "backbone.blocks.1.attn.rel_pos.height": "backbone.net.blocks.1.attn.rel_pos_h",
        "neck.levels.0.3.weight": "backbone.simfp_2.3.weight",
        "neck.levels.0.5.bias": "backbone.simfp_2.4.norm.bias",
        "neck.levels.1.3.weight": "backbone.simfp_3.2.weight",
        "neck.levels.2.3.weight": "backbone.simfp_4.1.norm.weight",
        "neck.levels.3.1.weight": "backbone.simfp_5.1.weight",
        "rpn_head.rpn_conv.1.conv.bias": "proposal_generator.rpn_head.conv.conv1.bias",
        "rpn_head.rpn_reg.weight": "proposal_generator.rpn_head.anchor_deltas.weight",
    }
    for ours, theirs in (("upsample.weight", "deconv.weight"), ("conv_logits.bias", "predictor.bias")):
        known[f"roi_head.mask_head.{ours}"] = f"roi_heads.mask_head.{theirs}"
    if cascade:
        known["roi_head.bbox_head.2.shared_convs.3.ln.weight"] = "roi_heads.box_head.2.conv4.norm.weight"
        known["roi_head.bbox_head.1.fc_reg.weight"] = "roi_heads.box_predictor.1.bbox_pred.weight"
    else:
        known["roi_head.bbox_head.shared_convs.0.conv.weight"] = "roi_heads.box_head.conv1.weight"
        known["roi_head.bbox_head.shared_fcs.0.weight"] = "roi_heads.box_head.fc1.weight"
    for stage in ("0.", "1.", "2.") if cascade else ("",):
        for i in range(4):
            for ours, theirs in (("conv.weight", "weight"), ("ln.weight", "norm.weight"), ("ln.bias", "norm.bias")):
                box = f"roi_heads.box_head.{stage}conv{i + 1}.{theirs}"
                known[f"roi_head.bbox_head.{stage}shared_convs.{i}.{ours}"] = box
                known[f"roi_head.mask_head.convs.{i}.{ours}"] = f"roi_heads.mask_head.mask_fcn{i + 1}.{theirs}"
    for level, stage, first in ((0, 2, 4), (1, 3, 1), (2, 4, 0), (3, 5, 1)):
        for i in (0, 1):
            known[f"neck.levels.{level}.{first + 2 * i}.weight"] = f"backbone.simfp_{stage}.{first + i}.weight"
            known[f"neck.levels.{level}.{first + 2 * i + 1}.bias"] = f"backbone.simfp_{stage}.{first + i}.norm.bias"
    for ours, theirs in known.items():
        assert torch.equal(found[ours], state[theirs]), ours
    # Strict loading left no tensor of the model out; the other way round, each of the file is in the model.
    values = {tuple(value.shape): [] for value in found.values()}
    for value in found.values():
        values[tuple(value.shape)].append(value)
    for name, value in state.items():
        if name != "backbone.net.pos_embed":
            assert any(torch.equal(value, other) for other in values[tuple(value.shape)]), name


def test_the_tool_converts_a_detector_and_prints_its_parts(run_tool, tmp_path):
    state = detectron2_state(cascade=False) | {"pixel_mean": torch.ones(3)}
    with open(tmp_path / "model_final.pkl", "wb") as stream:
        pickle.dump({"model": {name: value.numpy() for name, value in state.items()}, "__author__": "x"}, stream)
    narrow = tmp_path / "narrow.py"
    narrow.write_text(
        f"_base_ = {str(ROOT / 'configs' / 'vitdet_coco.py')!r}\n"
        f"model = dict(backbone=dict(arch=dict(_delete_=True, embed_dims={DIMS}, depth={DEPTH}, num_heads=2),\n"
        f"    global_attn_indexes=(1,)), neck=dict(in_channels={DIMS}))\n"
    )
    target = tmp_path / "ours.pth"
    result = run_tool("tools/convert_checkpoint.py", tmp_path / "model_final.pkl", target, "--config", narrow)
    assert result.returncode == 0, result.stdout + result.stderr
    for part in (
        "backbone, loaded",
        "roi_head, loaded",
        "ignored: pixel_mean, backbone.net.pos_embed (its first entry)",
    ):
        assert part in result.stdout, result.stdout
    assert load_trained(build_model(load_config(str(narrow))), target).ignored == ()


def test_unknown_and_missing_weights_are_named(tmp_path):
    state = detectron2_state(cascade=False)
    with pytest.raises(ValueError, match="roi_heads.keypoint_head.conv.weight"):
        convert_detectron2_detector({**state, "roi_heads.keypoint_head.conv.weight": torch.ones(1)})
    del state["roi_heads.box_head.fc1.bias"]
    torch.save(state, tmp_path / "partial.pth")
    with pytest.raises(ValueError, match=r"missing \(1\): roi_head.bbox_head.shared_fcs.0.bias"):
        load_trained(build_model(config(cascade=False)), tmp_path / "partial.pth")


def test_pyramid_and_heads_are_those_of_the_description():
    """FACTS of the paper's implementation: shapes, biases, norms and eps, layer by layer."""
    model = build_model(config(cascade=False))
    state = model.state_dict()
    assert len(model.neck.levels) == 4 and model.neck.num_outs == 5
    for level in range(4):
        assert not any(re.match(rf"neck\.levels\.{level}\.\d+\.bias", name) and state[name].ndim > 1 for name in state)
    kinds = [[type(layer).__name__ for layer in level] for level in model.neck.levels]
    outer = ["Conv2d", "LayerNorm2d", "Conv2d", "LayerNorm2d"]
    assert kinds == [
        ["ConvTranspose2d", "LayerNorm2d", "GELU", "ConvTranspose2d", *outer],
        ["ConvTranspose2d", *outer],
        outer,
        ["MaxPool2d", *outer],
    ]
    for level in model.neck.levels:
        convolutions = [layer for layer in level if isinstance(layer, torch.nn.Conv2d)]
        assert [layer.kernel_size for layer in convolutions] == [(1, 1), (3, 3)]
        assert all(layer.bias is None for layer in convolutions)
    assert all(conv.conv.bias is not None and not conv.with_norm for conv in model.rpn_head.rpn_conv)
    box = model.roi_head.bbox_head
    assert len(box.shared_convs) == 4 and all(conv.conv.bias is None and conv.with_norm for conv in box.shared_convs)
    assert [tuple(fc.weight.shape) for fc in box.shared_fcs] == [(1024, 12544)]
    mask = model.roi_head.mask_head
    assert len(mask.convs) == 4 and all(conv.with_norm and conv.conv.bias is None for conv in mask.convs)
    assert mask.upsample.bias is not None
    assert {module.eps for module in model.modules() if isinstance(module, torch.nn.LayerNorm)} == {1e-6}
