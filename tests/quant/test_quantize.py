"""INT8 with a receipt: calibration, refusals, what is written and when."""

import json
import shutil

import cv2
import numpy as np
import onnx
import pytest

from deploy.files import sha256_of
from deploy.manifest import load_manifest
from deploy.predictor import Predictor
from deploy.reference import check_reference, load_reference
from vitdense.quant import OpenVINORecipe
from vitdense.quant.calibration import collect_calibration

FILE = "model.openvino-int8.onnx"


@pytest.fixture
def bundle(small_bundle, tmp_path):
    shutil.copytree(small_bundle, tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def quantized(quantize_small):
    return quantize_small("openvino")


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_receipt_says_what_int8_costs(quantized, small_segmenter):
    receipt = json.loads((quantized / "receipt.json").read_text())
    measured = receipt["targets"]["openvino"]
    accuracy, latency = measured["accuracy"], measured["latency"]
    assert accuracy["fp32"]["images"] == 8
    assert accuracy["drop_points"] == pytest.approx(accuracy["fp32"]["miou"] - accuracy["int8"]["miou"], abs=1e-3)
    assert accuracy["fp32"]["miou"] > 30
    assert 0.9 < measured["agreement"]["pixels_equal"] <= 1
    assert latency["fp32"]["threads"] == latency["int8"]["threads"] == 2
    assert (latency["fp32"]["precision"], latency["int8"]["precision"]) == ("fp32", "int8")
    assert receipt["size_bytes"][FILE] == (quantized / FILE).stat().st_size
    assert {item["runtime"] for item in receipt["parity"]["runtimes"]} == {"onnxruntime", "openvino"}, "parity is kept"


def test_fp32_score_is_that_of_mmsegmentation(quantized, small_segmenter):
    import re

    inside = float(re.search(r"Iter\(val\) \[8/8\].*mIoU: ([\d.]+)", small_segmenter.log)[1])
    receipt = json.loads((quantized / "receipt.json").read_text())
    assert receipt["targets"]["openvino"]["accuracy"]["fp32"]["miou"] == pytest.approx(inside, abs=0.1)


def test_file_is_symmetric_int8_and_runs_everywhere(quantized, small_segmenter):
    model = onnx.load(quantized / FILE)
    zero_points = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(nodes) >= 10
    for node in nodes:
        if len(node.input) > 2:
            assert not zero_points[node.input[2]].any()
    image = next((small_segmenter.data / "images" / "val").iterdir())
    maps = [
        Predictor(quantized, runtime=r, precision="int8").predict(image).class_map for r in ("openvino", "onnxruntime")
    ]
    assert (maps[0] == maps[1]).mean() > 0.95


def test_manifest_and_reference_know_the_file(quantized, small_segmenter):
    manifest = load_manifest(quantized)
    manifest.verify(quantized, FILE)
    record = manifest.calibration[FILE]
    assert record["images"] == 24 and len(set(record["sha256"])) == 24
    assert record["recipe"] == OpenVINORecipe().to_dict()
    predictor = Predictor(quantized, precision="int8")
    check = check_reference(predictor.runtime, load_reference(quantized), FILE)
    assert check.passed and check.error < 1e-6


def test_without_eval_accuracy_is_said_to_be_not_measured(bundle, small_segmenter, run_tool):
    train = small_segmenter.data / "images" / "train"
    result = run_tool("tools/quantize.py", bundle, "--target", "openvino", "--calib", train)
    assert result.returncode == 0, result.stderr
    assert "not measured" in result.stdout
    measured = json.loads((bundle / "receipt.json").read_text())["targets"]["openvino"]
    assert measured["accuracy"] is None and "not measured" in measured["agreement"]["note"]
    assert measured["agreement"]["images"] == 8 and "left out of calibration" in measured["agreement"]["on"]


class TestRefusals:
    """The bundle stays byte for byte as it was."""

    @pytest.fixture(autouse=True)
    def unchanged(self, bundle):
        before = contents(bundle)
        yield
        assert contents(bundle) == before

    def quantize(self, refused, bundle, *arguments):
        return refused("tools/quantize.py", bundle, "--target", "openvino", *arguments)

    def test_images_that_are_scored_on(self, refused, bundle, small_segmenter):
        calib = small_segmenter.data / "images" / "val"
        message = self.quantize(refused, bundle, "--calib", calib, "--eval", small_segmenter.config)
        assert "0 different images" in message and "without the 8 that are scored on" in message

    def test_drop_above_the_limit(self, refused, bundle, small_segmenter, tmp_path):
        # Calibrated on black images, the ranges of every activation are far too narrow.
        (tmp_path / "black").mkdir()
        for level in range(8):
            cv2.imwrite(str(tmp_path / "black" / f"{level}.png"), np.full((96, 96, 3), level, np.uint8))
        message = self.quantize(refused, bundle, "--calib", tmp_path / "black", "--eval", small_segmenter.config)
        assert "INT8 loses" in message and "--max-drop" in message

    def test_calibration_folders(self, refused, bundle, tmp_path, small_segmenter):
        (tmp_path / "empty").mkdir()
        assert "empty" in self.quantize(refused, bundle, "--calib", tmp_path / "empty")
        assert "absent" in self.quantize(refused, bundle, "--calib", tmp_path / "absent")
        (tmp_path / "same").mkdir()
        for index in range(12):
            shutil.copy(small_segmenter.data / "images/train/0000.jpg", tmp_path / "same" / f"{index}.jpg")
        assert "1 different images" in self.quantize(refused, bundle, "--calib", tmp_path / "same")

    def test_targets_and_numbers(self, refused, bundle, tmp_path):
        message = refused("tools/quantize.py", bundle, "--target", "edge-tpu", "--calib", tmp_path)
        assert "invalid choice: 'edge-tpu'" in message and "openvino" in message
        assert "--max-drop" in self.quantize(refused, bundle, "--calib", tmp_path, "--max-drop", "-1")

    def test_damaged_bundles(self, refused, bundle, small_segmenter, tmp_path):
        train = small_segmenter.data / "images" / "train"
        assert "absent" in self.quantize(refused, tmp_path / "absent", "--calib", train)
        broken = tmp_path / "broken"
        shutil.copytree(bundle, broken)
        (broken / "model.onnx").write_bytes(b"altered")
        assert "sha256" in self.quantize(refused, broken, "--calib", train)


def test_a_publish_that_fails_puts_everything_back(quantized, tmp_path, monkeypatch):
    from vitdense.quant import publish

    folder, work = tmp_path / "bundle", tmp_path / "bundle" / ".quantize.x"
    shutil.copytree(quantized, folder)
    before = contents(folder)
    work.mkdir()
    (work / FILE).write_bytes(b"new")
    replace = publish.os.replace

    def interrupted(source, destination):
        if destination == folder / "model.json" and source.parent == work:
            raise KeyboardInterrupt
        replace(source, destination)

    monkeypatch.setattr(publish.os, "replace", interrupted)
    receipt = json.loads((folder / "receipt.json").read_text())
    with pytest.raises(KeyboardInterrupt):
        publish.publish(work, folder, load_manifest(folder), load_reference(folder), {**receipt, "targets": {}}, [FILE])
    shutil.rmtree(work)
    assert contents(folder) == before


def test_recipe_checks_itself():
    with pytest.raises(ValueError, match="preset='fast' is unknown"):
        OpenVINORecipe(preset="fast")
    with pytest.raises(ValueError, match="must lie in 0..1"):
        OpenVINORecipe(smooth_quant_alpha=2)


def test_images_that_are_scored_on_are_left_out(small_segmenter, tmp_path):
    calib = tmp_path / "calib"
    shutil.copytree(small_segmenter.data / "images" / "train", calib)
    twin = small_segmenter.data / "images" / "val" / "0003.jpg"
    shutil.copy(twin, calib / "renamed.jpg")
    found = collect_calibration([str(calib)], limit=64, minimum=8, scored={sha256_of(twin)})
    assert found.left_out == 1 and len(found.paths) == 24 and calib / "renamed.jpg" not in found.paths


def test_calibration_is_spread_over_the_folder(small_segmenter):
    train = str(small_segmenter.data / "images" / "train")
    chosen = collect_calibration([train], limit=8, minimum=8)
    assert [path.stem for path in chosen.paths] == ["0000", "0003", "0006", "0009", "0012", "0015", "0018", "0021"]
    with pytest.raises(ValueError, match="fewer than the 8"):
        collect_calibration([train], limit=4, minimum=8)
