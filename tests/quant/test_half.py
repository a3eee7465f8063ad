"""Float16 graphs: every type as the standard wants it, casts only where the precision changes, nothing lost to zero."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vitdense.quant.half import to_half

RNG = np.random.default_rng(0)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def graph(nodes, constants, outputs, size=(2, 8)):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)]
    ports = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    whole = helper.make_graph(nodes, "g", inputs, ports, constants)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


@pytest.fixture
def mixed():
    """x goes to both precisions; a value made in float16 is an output and is used in float32; a cast, a Resize."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Mul", ["b", "s"], ["c"], name="boxes"),
        helper.make_node("Add", ["c", "x"], ["d"], name="more_boxes"),
        helper.make_node("MatMul", ["d", "w"], ["e"], name="back"),
        helper.make_node("Cast", ["e"], ["f"], name="whole", to=TensorProto.INT64),
        helper.make_node("Cast", ["f"], ["h"], name="float_again", to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["h", "size"], ["i"], name="map"),
        helper.make_node("Resize", ["i", "", "twice"], ["j"], name="up", mode="linear"),
    ]
    constants = [
        constant("w", RNG.normal(0, 0.4, (8, 8))),
        constant("s", [3.0]),
        constant("twice", [1, 1, 2, 2]),
        numpy_helper.from_array(np.array([1, 1, 4, 4], np.int64), "size"),
    ]
    return graph(nodes, constants, {"b": TensorProto.FLOAT, "d": TensorProto.FLOAT, "j": TensorProto.FLOAT})


def test_results_stay_and_types_are_stated(mixed):
    half = to_half(mixed, {"boxes", "more_boxes"})
    x = RNG.normal(size=(2, 8)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x}) for model in (mixed, half)
    )
    for one, other in zip(before[:2], after[:2], strict=True):
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3)
    assert [value.name for value in half.graph.output] == ["b", "d", "j"]

    values = onnx.shape_inference.infer_shapes(half).graph.value_info
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    by_name = {node.name: node for node in half.graph.node}
    for name, kind in (("first", TensorProto.FLOAT16), ("back", TensorProto.FLOAT16), ("boxes", TensorProto.FLOAT)):
        inputs = [types.get(item, TensorProto.FLOAT) for item in by_name[name].input]
        assert inputs == [kind, kind], name
    assert types[by_name["up"].input[2]] == TensorProto.FLOAT, "scales of a Resize are float32 in any model"
    casts = [node.input[0] for node in half.graph.node if node.op_type == "Cast" and node.name.startswith("cast_")]
    assert sorted(casts) == sorted(["x", "b_half", "d", "j_half"]), "one for each tensor that is wanted in both"


def test_everything_kept_is_the_model_itself(mixed):
    half = to_half(mixed, {node.name for node in mixed.graph.node})
    assert [node.op_type for node in half.graph.node] == [node.op_type for node in mixed.graph.node]


def test_scales_do_not_become_zero():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "tiny", "zero"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "tiny", "zero"], ["y"], name="dq"),
    ]
    constants = [constant("tiny", 1e-9), numpy_helper.from_array(np.array(0, np.int8), "zero")]
    half = to_half(graph(nodes, constants, {"y": TensorProto.FLOAT}), set())
    (scale,) = (tensor for tensor in half.graph.initializer if tensor.name == "tiny_half")
    assert numpy_helper.to_array(scale) == np.float16(6e-8) and scale.data_type == TensorProto.FLOAT16
    (result,) = onnxruntime.InferenceSession(half.SerializeToString()).run(None, {"x": np.ones((2, 8), np.float32)})
    assert np.isfinite(result).all()


def test_what_float16_cannot_hold_is_refused():
    nodes = [helper.make_node("Mul", ["x", "large"], ["y"], name="scale_up")]
    with pytest.raises(ValueError, match="constant 'large' reaches 100000; float16 ends at 65504"):
        to_half(graph(nodes, [constant("large", [1e5])], {"y": TensorProto.FLOAT}), set())
    assert to_half(graph(nodes, [constant("large", [np.inf])], {"y": TensorProto.FLOAT}), set())
    assert to_half(graph(nodes, [constant("large", [1e5])], {"y": TensorProto.FLOAT}), {"scale_up"})
