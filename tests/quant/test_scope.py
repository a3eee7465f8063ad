"""Which nodes are layers, and which are coordinates or terms of an attention's scores."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vitdense.export.onnx_export import export_onnx
from vitdense.export.wrappers import FeatureGraph
from vitdense.models import ViT
from vitdense.quant import TARGETS, TensorRTRecipe, scope
from vitdense.quant.nncf_onnx import quantize_onnx

HEAD, POST = "mmdet.models.dense_heads.rtmdet_head.RTMDetHead", "vitdense.export.detection.decode.Decode"


def node(kind, inputs, output, owner, **attributes):
    made = helper.make_node(kind, inputs, [output], name=output, **attributes)
    if owner:
        made.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=str(["Detector", owner, "op"]))
    return made


def model_of(nodes, constants, inputs, outputs):
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", *ports, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.fixture
def detector():
    """A layer, two predictors, distances scaled in the head, boxes and a second stage that looks where they are."""
    nodes = [
        node("MatMul", ["x", "w"], "neck", HEAD),
        node("Relu", ["neck"], "active", HEAD),
        node("MatMul", ["active", "w"], "distances", HEAD),
        node("Exp", ["distances"], "exponential", HEAD),
        node("Mul", ["exponential", "stride"], "pixels", HEAD),
        node("Add", ["pixels", "x"], "boxes", POST),
        node("Mul", ["boxes", "active"], "regions", POST),
        node("MatMul", ["regions", "w"], "second", HEAD),
        node("Relu", ["second"], "second_active", HEAD),
        node("MatMul", ["second_active", "w"], "classes", HEAD),
        node("Sigmoid", ["classes"], "scores", POST),
    ]
    shape = [2, 4]
    return model_of(nodes, {"w": np.eye(4), "stride": [8.0]}, {"x": shape}, {"scores": shape, "boxes": shape})


def test_what_a_head_does_to_its_predictions_is_decoding(detector):
    assert scope.postprocessing_nodes(detector) == ["boxes", "regions", "scores"]
    assert scope.last_predictors(detector) == ["distances", "classes"]
    assert scope.decoding_nodes(detector) == ["exponential", "pixels", "boxes", "regions", "scores"]


def test_coordinates_are_float32_in_the_tensorrt_file(detector, tmp_path):
    TARGETS["tensorrt"].write(tmp_path, detector, detector)
    half = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "model.tensorrt-fp16.onnx"))
    kinds = {value.name: value.type.tensor_type.elem_type for value in half.graph.value_info}
    floats = {name for name, kind in kinds.items() if kind == TensorProto.FLOAT}
    assert {"distances", "exponential", "pixels", "regions"} <= floats and "second_active" not in floats


def test_a_segmenter_has_no_decoding(detector):
    for item in detector.graph.node:
        del item.metadata_props[:]
    assert scope.decoding_nodes(detector) == []


@pytest.fixture(scope="module")
def with_tables(tmp_path_factory):
    """A ViT with relative positions, windowed and global, as it is exported."""
    vit = ViT(
        dict(embed_dims=32, depth=2, num_heads=2, mlp_ratio=2), img_size=64, pretrain_img_size=64, patch_size=16,
        window_size=2, global_attn_indexes=(1,), use_rel_pos=True,
    )  # fmt: skip
    from vitdense.export.lowering import lower

    path = tmp_path_factory.mktemp("tables") / "model.onnx"
    export_onnx(FeatureGraph(lower(vit.eval(), (64, 64))), (64, 64), path)
    return onnx.load(path)


def test_tables_of_relative_positions_are_no_layers(with_tables):
    constants = {tensor.name for tensor in with_tables.graph.initializer}
    products = [item for item in with_tables.graph.node if item.op_type == "MatMul"]
    layers, attention = scope.layers(with_tables), scope.attention_products(with_tables)
    assert len(layers) == 1 + 2 * 6, "patch embedding; q, k, v, proj, fc1 and fc2 of two blocks"
    tables = [item.name for item in products if item.name not in layers and constants & set(item.input)]
    assert tables and set(tables) <= set(attention)
    assert len(attention) == len(tables) + 2 * 2
    tensors = [np.random.default_rng(seed).normal(size=(1, 3, 64, 64)).astype(np.float32) for seed in range(2)]
    quantized = TARGETS["tensorrt"].quantize(with_tables, "image", tensors, TensorRTRecipe())
    ready = {item.output[0] for item in quantized.graph.node if item.op_type == "DequantizeLinear"}
    assert not [item.name for item in quantized.graph.node if item.name in attention and ready & set(item.input)]


def test_an_exported_file_names_modules_and_no_paths(with_tables):
    text = with_tables.SerializeToString()
    assert b"blocks.1.mlp.fc2" in text and b"vitdense.models.blocks.Mlp" in text
    assert b".py" not in text and b"File " not in text


def test_a_constant_that_a_layer_shares_with_another_node_stays_for_that():
    nodes = [
        node("MatMul", ["x", "w"], "product", ""),
        node("Add", ["product", "shared"], "layer", ""),
        node("Relu", ["layer"], "active", ""),
        node("Mul", ["active", "shared"], "scaled", ""),
        node("MatMul", ["scaled", "w"], "y", ""),
    ]
    rng = np.random.default_rng(0)
    shared = rng.normal(size=8).astype(np.float32)
    model = model_of(nodes, {"w": rng.normal(size=(8, 8)), "shared": shared}, {"x": [1, 3, 8]}, {"y": [1, 3, 8]})
    tensors = [rng.normal(size=(1, 3, 8)).astype(np.float32) for _ in range(4)]
    quantized = quantize_onnx(model, "x", tensors, TensorRTRecipe(smooth_quant_alpha=-1), [])
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    used = {item.name: item.input[1] for item in quantized.graph.node if item.name in ("layer", "scaled")}
    np.testing.assert_array_equal(values[used["scaled"]], shared)
    assert np.abs(values[used["layer"]] - shared).max() > 1e-5, "corrected"


def test_a_bias_that_levels_share_is_corrected_for_each():
    nodes = [
        node("Conv", ["x", "w", "bias"], "fine", ""),
        node("MaxPool", ["x"], "half", "", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", ["half", "eight"], "large", ""),
        node("Conv", ["large", "w", "bias"], "coarse", ""),
    ]
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(size=(4, 4, 1, 1)), "bias": rng.normal(size=4), "eight": [8.0]}
    model = model_of(nodes, constants, {"x": [1, 4, 8, 8]}, {"fine": [1, 4, 8, 8], "coarse": [1, 4, 4, 4]})
    before = model.SerializeToString()
    tensors = [rng.normal(size=(1, 4, 8, 8)).astype(np.float32) for _ in range(4)]
    quantized = quantize_onnx(model, "x", tensors, TensorRTRecipe(), [])
    assert model.SerializeToString() == before
    biases = {item.name: item.input[2] for item in quantized.graph.node if item.op_type == "Conv"}
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    assert biases["fine"] != biases["coarse"]
    assert np.abs(values[biases["fine"]] - values[biases["coarse"]]).max() > 1e-4, "each by its own error"
