"""From a trained model to a bundle: what stands in it, and that it computes what the model computes."""

import json
import re
import shutil

import numpy as np
import onnx
import pytest
import torch

from deploy.io import read_image
from deploy.manifest import load_manifest
from deploy.predictor import Predictor
from deploy.reference import load_reference, relative_error
from tests.models.test_oracles import draw_parameters
from vitdense.checkpoints import load_trained
from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.errors import ParityError
from vitdense.export import lower
from vitdense.export.bundle import check_destination
from vitdense.export.onnx_export import check_graph
from vitdense.export.parity import check_parity, run_each
from vitdense.models import ViT


@pytest.mark.parametrize("shape", [(64, 64), (96, 160), (77, 130)])
@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(use_rel_pos=True, img_size=128, residual_block_indexes=(2,)),
        dict(rel_pos_bias=True, pos_embed="sincos"),
        dict(pos_embed="rotary", mlp="swiglu"),
        dict(pos_embed="separate"),
    ],
)
def test_lowering_changes_nothing_but_the_form(shape, window, options):
    model = ViT(
        dict(embed_dims=32, depth=3, num_heads=4),
        window_size=window,
        global_attn_indexes=(1,),
        out_indices=(0, 2),
        with_cls_token=True,
        num_register_tokens=2,
        layer_scale_init=1.0,
        final_norm=True,
        **options,
    )
    draw_parameters(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lowered = lower(model, shape)
    image = torch.randn(1, 3, *shape)
    with torch.no_grad():
        for found, expected in zip(lowered(image), model(image), strict=True):
            assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="fixed to the grid"):
        lowered(torch.randn(1, 3, shape[0] + 16, shape[1]))
    with pytest.raises(ValueError, match="evaluation mode"):
        lower(model.train(), shape)


def test_graph_is_static_standard_and_folded(small_bundle):
    model = onnx.load(small_bundle / "model.onnx")
    kinds = [node.op_type for node in model.graph.node]
    assert "Resize" not in kinds and {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert kinds.count("LayerNormalization") == 5  # two per block and the final one, none decomposed
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 96, 96]
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 4, 12, 12]
    assert sorted(path.name for path in small_bundle.iterdir()) == [
        "model.json",
        "model.onnx",
        "receipt.json",
        "reference.npz",
    ]


def test_graph_check_names_what_devices_cannot_build():
    def graph(node, shape=(1, 3)):
        value = onnx.helper.make_tensor_value_info
        return onnx.helper.make_model(
            onnx.helper.make_graph([node], "g", [value("x", 1, shape)], [value("y", 7, (2, 3))]),
            opset_imports=[onnx.helper.make_opsetid("", 18)],
        )

    with pytest.raises(ValueError, match="node 'find' is a ai.onnx.NonZero"):
        check_graph(graph(onnx.helper.make_node("NonZero", ["x"], ["y"], name="find")))
    with pytest.raises(ValueError, match="tensor 'x' has no static shape"):
        check_graph(graph(onnx.helper.make_node("NonZero", ["x"], ["y"]), shape=("n", 3)))


def test_manifest_says_what_a_device_needs(small_bundle, small_segmenter):
    manifest = load_manifest(small_bundle)
    assert manifest.task == "segmentation" and manifest.classes == ("ground", "disc", "square", "triangle")
    assert manifest.input.color_order == "RGB" and manifest.input.resize == "stretch"
    assert manifest.input.mean == (123.675, 116.28, 103.53)
    assert manifest.outputs[0].stride == 8 and manifest.outputs[0].kind == "logits"
    assert manifest.source["checkpoint"] == "iter_60.pth" and len(manifest.source["checkpoint_sha256"]) == 64
    manifest.verify(small_bundle, "model.onnx")
    receipt = json.loads((small_bundle / "receipt.json").read_text())
    assert {item["runtime"] for item in receipt["parity"]["runtimes"]} == {"onnxruntime", "openvino"}
    assert all(item["relative_error"]["logits"] <= 1e-4 for item in receipt["parity"]["runtimes"])
    assert receipt["targets"] == {} and len(receipt["parity"]["images"]) == 4


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_device_side_agrees_with_torch_and_mmsegmentation(small_bundle, small_segmenter, runtime):
    from mmseg.apis import inference_model

    cfg = load_config(small_segmenter.config)
    model = build_model(cfg)
    load_trained(model, small_segmenter.checkpoint)
    model.cfg = cfg
    predictor = Predictor(small_bundle, runtime=runtime, precision="fp32", threads=2)
    for path in sorted((small_segmenter.data / "images" / "val").iterdir()):
        prediction = predictor.predict(path)
        tensor, _ = predictor.preprocess(read_image(path))
        with torch.no_grad():
            expected = model.decode_head(model.backbone(torch.from_numpy(tensor))).numpy()
        assert relative_error(prediction.outputs["logits"], expected) <= 1e-4
        mmseg_map = inference_model(model, str(path)).pred_sem_seg.data[0].numpy()
        assert (prediction.class_map == mmseg_map).mean() >= 0.999


def test_reference_holds_real_inputs_and_outputs(small_bundle):
    reference = load_reference(small_bundle)
    assert len(reference.inputs) == 2 and reference.inputs[0].shape == (1, 3, 96, 96)
    assert reference.outputs["model.onnx"]["logits"][0].shape == (1, 4, 12, 12)
    assert reference.tolerances == {"model.onnx": 1e-3}


def test_parity_fails_on_other_weights(small_bundle):
    manifest = load_manifest(small_bundle)
    reference = load_reference(small_bundle)
    expected = [[array * 1.001] for array in reference.outputs["model.onnx"]["logits"]]
    arguments = (manifest.input, manifest.outputs, 2)
    with pytest.raises(ParityError, match="output 'logits' of model.onnx on openvino is off by (9.99e-04|1.00e-03)"):
        check_parity(small_bundle / "model.onnx", "openvino", reference.inputs, expected, *arguments)
    nan = [[np.full_like(array, np.nan)] for array in reference.outputs["model.onnx"]["logits"]]
    with pytest.raises(ParityError, match="off by nan"):
        check_parity(small_bundle / "model.onnx", "onnxruntime", reference.inputs, nan, *arguments)


def test_backbone_with_pyramid_alone(run_tool, small_segmenter, tmp_path):
    config, checkpoint, out = tmp_path / "pyramid.py", tmp_path / "pyramid.pth", tmp_path / "features"
    neck = "dict(type='vitdense.SimpleFeaturePyramid', in_channels=32, out_channels=32, num_outs=5)"
    config.write_text(
        small_segmenter.config.read_text() + f"model.update(neck={neck})\nmodel['decode_head']['in_index'] = 2\n"
    )
    model = draw_parameters(build_model(load_config(config)))
    torch.save({"state_dict": model.state_dict()}, checkpoint)
    shape = ["--shape", "96", "160", "--num-images", "2", "--task", "features"]
    result = run_tool("tools/export.py", config, checkpoint, "--out", out, *shape)
    assert result.returncode == 0, result.stdout + result.stderr
    manifest = load_manifest(out)
    assert manifest.task == "features"
    shapes = [output.shape[1:] for output in manifest.outputs]
    assert shapes == [(32, 48, 80), (32, 24, 40), (32, 12, 20), (32, 6, 10), (32, 3, 5)]
    assert [output.stride for output in manifest.outputs] == [2, 4, 8, 16, 32]
    kinds = [node.op_type for node in onnx.load(out / "model.onnx").graph.node]
    # The channel LayerNorm is one node too: nine of them stand in the pyramid.
    assert kinds.count("LayerNormalization") == 5 + 9
    predictor = Predictor(out, precision="fp32", runtime="onnxruntime")
    path = next((small_segmenter.data / "images" / "val").iterdir())
    tensor, _ = predictor.preprocess(read_image(path))
    with torch.no_grad():
        expected = model.neck(model.backbone(torch.from_numpy(tensor)))
    for found, reference in zip(predictor.predict(path).outputs.values(), expected, strict=True):
        assert relative_error(found, reference.numpy()) <= 1e-4


def test_batch(run_tool, small_segmenter, tmp_path):
    arguments = ["--out", tmp_path / "b", "--shape", "96", "96", "--batch", "2", "--num-images", "3"]
    result = run_tool("tools/export.py", small_segmenter.config, small_segmenter.checkpoint, *arguments)
    assert result.returncode == 0, result.stderr
    assert load_manifest(tmp_path / "b").outputs[0].shape == (2, 4, 12, 12)
    first, second = load_reference(tmp_path / "b").inputs[0]
    assert (first != second).any(), "a batch of one image repeated would hide that images meet"


def test_every_place_of_a_batch_is_compared_with_its_own_image():
    def runtime(tensor):
        return {"mean": tensor.mean(axis=(1, 2, 3)) + np.arange(len(tensor)) * 100}

    tensors = [np.full((1, 3, 2, 2), value, np.float32) for value in range(5)]
    found = [result["mean"].tolist() for result in run_each(runtime, tensors, 2)]
    assert found == [[0], [101], [2], [103], [4]]
    assert [result["mean"].tolist() for result in run_each(runtime, tensors[:1], 3)] == [[0]]


class TestRefusals:
    """Nothing appears, and the message says what to do."""

    def export(self, refused, small_segmenter, out, *more, checkpoint=None, **options):
        checkpoint = checkpoint or small_segmenter.checkpoint
        return refused("tools/export.py", small_segmenter.config, checkpoint, "--out", out, *more, **options)

    def test_existing_bundle(self, refused, small_segmenter, small_bundle, tmp_path):
        message = self.export(refused, small_segmenter, small_bundle, "--shape", "96", "96")
        assert "--overwrite" in message
        mixed = tmp_path / "mixed"
        shutil.copytree(small_bundle, mixed)
        (mixed / "thesis.txt").write_text("mine")
        message = self.export(refused, small_segmenter, mixed, "--shape", "96", "96", "--overwrite")
        assert "thesis.txt" in message and (mixed / "thesis.txt").read_text() == "mine"
        (mixed / "thesis.txt").unlink()
        (mixed / "engines").mkdir()
        check_destination(mixed, overwrite=True)  # engines are part of a bundle and go with their model
        (tmp_path / "notes").mkdir()
        message = self.export(refused, small_segmenter, tmp_path / "notes", "--shape", "96", "96", "--overwrite")
        assert "is no bundle" in message

    def test_images(self, refused, small_segmenter, tmp_path):
        (tmp_path / "empty").mkdir()
        shape = ["--shape", "96", "96"]
        out = tmp_path / "out"
        assert "empty" in self.export(refused, small_segmenter, out, *shape, "--images", tmp_path / "empty")
        (tmp_path / "bad.jpg").write_bytes(b"not an image")
        assert "bad.jpg" in self.export(refused, small_segmenter, out, *shape, "--images", tmp_path / "bad.jpg")
        moved = ["--cfg-options", f"test_dataloader.dataset.data_root={tmp_path}/gone"]
        assert "--images DIR" in self.export(refused, small_segmenter, out, *shape, *moved)
        assert not out.exists() and not list(tmp_path.glob(".out*"))

    def test_wrong_weights_and_classes(self, refused, small_segmenter, tmp_path):
        out, shape = tmp_path / "out", ["--shape", "96", "96"]
        wrong = tmp_path / "wrong.pth"
        torch.save({"state_dict": {"conv.weight": torch.zeros(1)}}, wrong)
        message = self.export(refused, small_segmenter, out, *shape, checkpoint=wrong)
        assert re.search(r"missing \(\d+\): backbone.blocks.0", message) and "unused (1): conv.weight" in message
        two = ["--cfg-options", "test_dataloader.dataset.metainfo.classes=('a','b')"]
        message = self.export(
            refused, small_segmenter, out, *shape, "--images", small_segmenter.data / "images/val", *two
        )
        assert "the weights were trained for the classes ['ground', 'disc'" in message and not out.exists()

    def test_whole_detector_and_sizes(self, refused, small_segmenter, tmp_path):
        out = tmp_path / "out"
        assert "--shape must be positive" in self.export(refused, small_segmenter, out, "--shape", "0", "96")
        assert "argument --task" in self.export(refused, small_segmenter, out, "--shape", "9", "9", "--task", "pose")


def test_an_interrupted_swap_keeps_the_old_bundle(tmp_path, monkeypatch):
    from vitdense.export import bundle

    old, new = tmp_path / "bundle", tmp_path / ".new"
    for folder, text in ((old, "old"), (new, "new")):
        folder.mkdir()
        (folder / "model.json").write_text(text)
    rename = bundle.os.rename

    def interrupted(source, destination):
        if source == new:
            raise KeyboardInterrupt
        rename(source, destination)

    monkeypatch.setattr(bundle.os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundle._swap_in(new, old)
    assert (old / "model.json").read_text() == "old"
    monkeypatch.undo()
    bundle._swap_in(new, old)
    assert (old / "model.json").read_text() == "new" and [path.name for path in tmp_path.iterdir()] == ["bundle"]
