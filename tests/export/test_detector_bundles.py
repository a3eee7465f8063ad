"""Trained detectors through the export command: static files whose objects are those of MMDetection."""

import json
import shutil

import cv2
import onnx
import pytest
import torch
from onnx.numpy_helper import to_array

from deploy.detections import match
from deploy.manifest import load_manifest
from deploy.predictor import Predictor
from vitdense.quant.scope import (
    decoding_nodes,
    last_predictors,
    layers,
    patch_embedding,
    transposed_convolutions,
)

PREDICTORS = {
    "vit48_gfl_bccd": {"gfl_cls", "gfl_reg"},
    "vit48_faster-rcnn_bccd": {"rpn_cls", "rpn_reg"},
}  # convolutions
MODELS = list(PREDICTORS)
FILE = "model.openvino-int8.onnx"
SCORED = ["--cfg-options", "test_dataloader.dataset.indices=24"]  # of 72 test images: the rest adds minutes, no meaning


@pytest.fixture(scope="module", params=MODELS)
def bundle(request, run_tool, tmp_path_factory, data_root):
    """Bundle of a fixture, exported on eight images of blood cells, and what the command printed."""
    out = tmp_path_factory.mktemp("detector") / request.param
    config, weights = f"configs/fixtures/{request.param}.py", f"weights/{request.param}.safetensors"
    options = ["--out", out, "--shape", 256, 320, "--format", "onnx", "pt2"]
    result = run_tool("tools/export.py", config, weights, *options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return out, result.stdout


def test_the_file_finds_what_mmdetection_finds(bundle):
    out, printed = bundle
    receipt = json.loads((out / "receipt.json").read_text())
    assert [parity["runtime"] for parity in receipt["parity"]["runtimes"]] == ["onnxruntime", "openvino", "torch"]
    for parity in receipt["parity"]["runtimes"]:
        found = parity["detections"]
        assert found["matched"] >= 0.995 * max(found["eager"], found["exported"]) and found["eager"] >= 100
    assert "of MMDetection" in printed


def test_the_device_side_draws_and_lists_objects(bundle, run_tool, data_root, tmp_path):
    out, _ = bundle
    names = (data_root / "bccd/ImageSets/Main/test.txt").read_text().split()[:3]
    images = [data_root / f"bccd/JPEGImages/{name}.jpg" for name in names]
    result = run_tool("-m", "deploy.predict", out, *images, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "predictions.json").read_text())
    for record, path in zip(report["images"], images, strict=True):
        objects = record["objects"]
        assert record["exact"] and len(objects) >= 5 and {item["class"] for item in objects} & {"RBC", "WBC"}
        assert all(item["score"] >= 0.3 for item in objects)
        photo, picture = cv2.imread(str(path)), cv2.imread(str(tmp_path / record["files"]["overlay"]))
        assert picture.shape == photo.shape and (picture != photo).any(axis=2).mean() > 0.02
    assert "RBC" in result.stdout
    few = run_tool("-m", "deploy.predict", out, images[0], "--out", tmp_path / "few", "--score", 0.7)
    assert few.returncode == 0
    chosen = json.loads((tmp_path / "few/predictions.json").read_text())["images"][0]["objects"]
    assert len(chosen) < len(report["images"][0]["objects"]) and all(item["score"] >= 0.7 for item in chosen)


def test_the_half_program_decodes_in_float32(bundle, data_root):
    """The same parts stay whole as in the ONNX file's: boxes, overlaps, what a head does behind its predictors."""
    program = torch.export.load(str(bundle[0] / "model.fp16.pt2"))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    nodes = [node for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    kinds = {node: node.meta["val"].dtype for node in nodes}
    products = [node for node in nodes if "conv" in str(node.target) or "aten.linear" in str(node.target)]
    assert len(products) >= 30 and {kinds[node] for node in products} == {torch.float16}
    exact = tuple(f"aten.{name}." for name in ("exp", "sigmoid", "topk", "maximum", "minimum"))
    rounds = [node for node in nodes if str(node.target).startswith(exact)]
    assert len(rounds) >= 20 and torch.float16 not in {kinds[node] for node in rounds}
    found, expected = ([], [])
    for precision, objects in (("fp16", found), ("fp32", expected)):
        predictor = Predictor(bundle[0], runtime="torch", precision=precision, threads=2)
        for name in (data_root / "bccd/ImageSets/Main/test.txt").read_text().split()[:4]:
            objects.append(predictor.predict(data_root / f"bccd/JPEGImages/{name}.jpg").detections)
    assert sum(len(item) for item in expected) >= 40
    for one, other in zip(found, expected, strict=True):
        counts = match(one, other, iou=0.97, score_tolerance=0.02)
        assert counts.matched >= 0.97 * max(len(one), len(other))


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
def test_the_reference_holds_on_this_machine(bundle, run_tool, runtime):
    result = run_tool("-m", "deploy.bench", bundle[0], "--check", "--runtime", runtime)
    assert result.returncode == 0, result.stdout + result.stderr


def test_int8_rounds_the_network_and_not_the_boxes(bundle, run_tool, data_root, tmp_path):
    folder, calib = tmp_path / "bundle", tmp_path / "calib"
    shutil.copytree(bundle[0], folder)
    calib.mkdir()
    for name in (data_root / "bccd/ImageSets/Main/train.txt").read_text().split()[:16]:
        shutil.copy(data_root / f"bccd/JPEGImages/{name}.jpg", calib)
    config = f"configs/fixtures/{bundle[0].name}.py"
    # OpenVINO's INT8 is inexact on CPUs without VNNI: its loss is bounded loosely here, the file's own one below.
    options = ["--calib", calib, "--eval", config, "--max-drop", 10, "--threads", 2, "--cpu-compat", *SCORED]
    result = run_tool("tools/quantize.py", folder, "--target", "openvino", *options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert "box AP" in result.stdout and "objects in common" in result.stdout
    measured = json.loads((folder / "receipt.json").read_text())["targets"]["openvino"]
    assert measured["accuracy"]["fp32"]["box_ap50"] > 80 and measured["agreement"]["objects_agree"] > 0.6
    assert load_manifest(folder).calibration[FILE]["recipe"]["cpu_compat"] is True

    model = onnx.load(folder / FILE)
    float_graph = onnx.load(folder / "model.onnx")
    kept = {*decoding_nodes(float_graph), *last_predictors(float_graph)}
    # The exporter's own casts say no module; those of index arithmetic would count in float16.
    assert not [node.name for node in float_graph.graph.node if node.op_type == "Cast" and node.name not in kept]
    dequantized = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    rounded = [node for node in model.graph.node if dequantized & set(node.input)]
    assert len([node for node in rounded if node.op_type in ("Conv", "MatMul", "Gemm")]) >= 30
    assert not [node.name for node in rounded if node.name in kept]
    predictors = [node for node in float_graph.graph.node if node.op_type == "Conv" and node.name in kept]
    assert {node.input[1].split(".")[-2] for node in predictors} == PREDICTORS[bundle[0].name]
    constants = {tensor.name: to_array(tensor) for tensor in model.graph.initializer}
    sources = [node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"]
    weights = [constants[name] for name in sources if name in constants]
    assert weights and all(abs(array.astype(int)).max() <= 64 for array in weights if array.size > 1)

    options = ["--runtime", "onnxruntime", "--threads", 2, *SCORED]
    scores = {}
    for precision in ("fp32", "int8"):
        path = tmp_path / f"{precision}.json"
        result = run_tool("tools/evaluate.py", folder, config, *options, "--precision", precision, "--json", path)
        assert result.returncode == 0, result.stderr[-3000:]
        scores[precision] = json.loads(path.read_text())
    assert scores["fp32"]["box_ap"] == pytest.approx(measured["accuracy"]["fp32"]["box_ap"], abs=0.1)
    assert scores["int8"]["box_ap"] > scores["fp32"]["box_ap"] - 1.5


def test_tensorrt_files_round_layers_and_keep_coordinates_whole(bundle, run_tool, data_root, tmp_path):
    folder, calib = tmp_path / "bundle", tmp_path / "calib"
    shutil.copytree(bundle[0], folder)
    calib.mkdir()
    for name in (data_root / "bccd/ImageSets/Main/train.txt").read_text().split()[:16]:
        shutil.copy(data_root / f"bccd/JPEGImages/{name}.jpg", calib)
    options = [
        "--calib",
        calib,
        "--eval",
        f"configs/fixtures/{bundle[0].name}.py",
        "--max-drop",
        1.5,
        "--threads",
        2,
        *SCORED,
    ]
    result = run_tool("tools/quantize.py", folder, "--target", "tensorrt", *options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    accuracy = json.loads((folder / "receipt.json").read_text())["targets"]["tensorrt"]["accuracy"]
    assert accuracy["fp16"]["box_ap"] == pytest.approx(accuracy["fp32"]["box_ap"], abs=0.3)

    source = onnx.load(folder / "model.onnx")
    decoding = set(decoding_nodes(source))
    left_alone = {*last_predictors(source), *patch_embedding(source), *transposed_convolutions(source)}
    for name in ("model.tensorrt-int8.onnx", "model.tensorrt-fp16.onnx", "model.tensorrt-int8-weak.onnx"):
        model = onnx.shape_inference.infer_shapes(onnx.load(folder / name), strict_mode=True)
        kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
        ready = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
        rounded = {node.name for node in model.graph.node if ready & set(node.input)}
        assert rounded == (set(layers(source)) - left_alone if "int8" in name else set())
        halves = {key for key, kind in kinds.items() if kind == onnx.TensorProto.FLOAT16}
        in_half = {node.name for node in model.graph.node if halves & set(node.output) and node.op_type != "Cast"}
        assert not in_half & decoding
        assert len(in_half) >= 100 or "weak" in name

    pytest.importorskip(
        "tensorrt_rtx", reason="TensorRT for RTX is not installed: pip install 'vitdense[tensorrt-check]'"
    )
    result = run_tool("tools/check_engine.py", folder)
    assert result.returncode == 0, result.stdout + result.stderr
