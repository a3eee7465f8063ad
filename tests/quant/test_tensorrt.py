"""Files for TensorRT: which layers are in INT8, what each tensor's type is, and that TensorRT builds them."""

import json
import shutil

import onnx
import pytest
from onnx import TensorProto
from onnx.numpy_helper import to_array

from deploy.manifest import load_manifest
from deploy.predictor import Predictor
from vitdense.quant import scope

NOT_INSTALLED = "TensorRT for RTX is not installed: pip install 'vitdense[tensorrt-check]'"
INT8, FP16, WEAK = (f"model.tensorrt-{kind}.onnx" for kind in ("int8", "fp16", "int8-weak"))


@pytest.fixture(scope="module")
def quantized(quantize_small):
    return quantize_small("tensorrt")


def dequantized(model):
    return {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}


def test_layers_are_in_int8_and_nothing_else(quantized):
    source, model = onnx.load(quantized / "model.onnx"), onnx.load(quantized / INT8)
    left_alone = {*scope.last_predictors(source), *scope.patch_embedding(source)}
    layers = [name for name in scope.layers(source) if name not in left_alone]
    assert set(layers) >= products_of_blocks(source)
    assert len(left_alone & set(scope.layers(source))) == 2  # the patch embedding and the classifier
    ready = dequantized(model)
    found = [node.name for node in model.graph.node if ready & set(node.input)]
    assert sorted(found) == sorted(layers)
    for node in model.graph.node:
        if node.name in layers:
            assert set(node.input[:2]) <= ready, f"both inputs of {node.name}"


def test_q_and_dq_are_symmetric_with_scales_per_channel_of_weights(quantized):
    for name, scale_type in ((INT8, TensorProto.FLOAT16), (WEAK, TensorProto.FLOAT)):
        model = onnx.load(quantized / name)
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
                continue
            scale, zero = (constants[item] for item in node.input[1:3])
            assert scale.data_type == scale_type and zero.data_type == TensorProto.INT8 and not to_array(zero).any()
            is_weight = node.input[0] in constants
            assert (to_array(scale).size > 1) == is_weight, "activations per tensor, weights per channel"
            if is_weight:
                assert constants[node.input[0]].data_type == TensorProto.INT8


@pytest.mark.parametrize("name", [INT8, FP16])
def test_no_float32_is_left_inside(quantized, name):
    model = onnx.shape_inference.infer_shapes(onnx.load(quantized / name))
    assert model.opset_import[0].version == (19 if name == INT8 else 18)
    ports = {value.name for value in [*model.graph.input, *model.graph.output]}
    floats = [v.name for v in model.graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    assert not set(floats) - ports
    assert all(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in model.graph.input)


def test_weak_file_is_for_the_oldest_parser(quantized):
    model = onnx.load(quantized / WEAK)
    assert model.opset_import[0].version == 17
    assert "LayerNormalization" in {node.op_type for node in model.graph.node}


def test_the_manifest_says_what_each_file_asks_for(quantized):
    files = load_manifest(quantized).files
    source = onnx.load(quantized / "model.onnx")
    left_alone = {*scope.last_predictors(source), *scope.patch_embedding(source)}
    rounded = set(scope.layers(source)) - left_alone
    others = {*scope.attention_products(source), *(left_alone & set(scope.layers(source)))}
    for name in (INT8, WEAK):
        assert set(files[name].layers) == {"int8", "fp16"}
        assert set(files[name].layers["int8"]) == rounded and set(files[name].layers["fp16"]) == others
    assert set(files[FP16].layers) == {"fp16"} and set(files[FP16].layers["fp16"]) == rounded | others
    # Two blocks of width 32: 144 tokens and the cls token, which the attention of the first has in each of 9 windows.
    counts = files[INT8].layers["int8"]
    expected = 32 * 32 * (2 * 145 * (4 + 4 + 4) + (9 - 1) * 4)
    assert sum(count for node, count in counts.items() if node in products_of_blocks(source)) == expected


def products_of_blocks(source):
    inside = [node for node in source.graph.node if ".blocks." in str(node.metadata_props)]
    return {node.name for node in inside if node.op_type in ("MatMul", "Gemm")} - set(scope.attention_products(source))


def test_receipt_manifest_and_runs(quantized, small_segmenter):
    receipt = json.loads((quantized / "receipt.json").read_text())["targets"]["tensorrt"]
    accuracy = receipt["accuracy"]
    assert receipt["latency"] is None and receipt["agreement"]["pixels_equal"] > 0.9
    assert accuracy["fp16"]["miou"] == pytest.approx(accuracy["fp32"]["miou"], abs=0.2)
    manifest = load_manifest(quantized)
    assert {manifest.files[name].target for name in (INT8, FP16, WEAK)} == {"tensorrt", "tensorrt-weak"}
    assert set(manifest.calibration) == {INT8, WEAK}
    for name in (INT8, FP16, WEAK):
        manifest.verify(quantized, name)
    image = next((small_segmenter.data / "images" / "val").iterdir())
    maps = [
        Predictor(quantized, runtime="onnxruntime", precision="int8", target=target).predict(image).class_map
        for target in ("tensorrt", "tensorrt-weak")
    ]
    assert (maps[0] == maps[1]).mean() > 0.98
    with pytest.raises(ValueError, match="target of a file for openvino is 'tensorrt'"):
        Predictor(quantized, runtime="openvino", target="tensorrt")


def test_tensorrt_builds_the_strongly_typed_files(quantized, run_tool, tmp_path):
    pytest.importorskip("tensorrt_rtx", reason=NOT_INSTALLED)
    folder = tmp_path / "bundle"
    shutil.copytree(quantized, folder)
    result = run_tool("tools/check_engine.py", folder)
    assert result.returncode == 0, result.stdout + result.stderr
    checks = json.loads((folder / "receipt.json").read_text())["targets"]["tensorrt"]["engine_checks"]
    assert [check["file"] for check in checks] == [INT8, FP16]
    assert all(check["engine_bytes"] > 1e5 and check["capability"] == "sm86" for check in checks)


def test_what_tensorrt_lacks_is_named(tmp_path):
    pytest.importorskip("tensorrt_rtx", reason=NOT_INSTALLED)
    from vitdense.export.engine_check import check_engine

    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Unique", ["x"], ["y"], name="odd_one")],
            "g",
            [onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
            [onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.save(model, tmp_path / "odd.onnx")
    with pytest.raises(ValueError, match=r"cannot read odd.onnx: node 'odd_one' \(Unique\)"):
        check_engine(tmp_path / "odd.onnx", "", "fp32")
    with pytest.raises(ValueError, match="cannot build for 'sm999'; it knows sm.*sm86"):
        check_engine(tmp_path / "odd.onnx", "", "fp32", "sm999")


def test_nothing_to_check_is_said(small_bundle, refused):
    assert "no file for TensorRT" in refused("tools/check_engine.py", small_bundle)
