"""Counting values outside of the calibrated ranges."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vitdense.quant.saturation import saturation, saturation_record


def model_of(kind, zero, scale=0.1):
    """x, rounded, times a rounded weight."""
    constants = {
        "scale": np.float32(scale),
        "zero": np.array(zero, kind),
        "w": np.eye(4, dtype=np.int8),
        "zero_w": np.int8(0),
        "one": np.float32(1),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x_q"], name="q"),
        helper.make_node("DequantizeLinear", ["x_q", "scale", "zero"], ["x_dq"], name="dq"),
        helper.make_node("DequantizeLinear", ["w", "one", "zero_w"], ["w_dq"], name="dq_w"),
        helper.make_node("MatMul", ["x_dq", "w_dq"], ["y"], name="layer"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4]) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def source():
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def image(*values):
    return np.array(values, np.float32).reshape(1, 2, 4)


@pytest.mark.parametrize(
    ("kind", "zero", "lowest", "highest"),
    [(np.int8, 0, -12.8, 12.7), (np.uint8, 128, -12.8, 12.7), (np.uint8, 0, 0, 25.5)],
)
def test_only_what_rounds_beyond_the_last_level_is_clipped(kind, zero, lowest, highest):
    model = model_of(kind, zero)
    before = model.SerializeToString()
    fits = image(lowest, lowest - 0.04, highest, highest + 0.04, 0, 1, 2, 3)
    beyond = image(lowest - 0.06, lowest - 100, highest + 0.06, 0, 0, 1, 2, 3)
    assert saturation(model, [fits], 1) == {"x_dq": 0.0}
    assert saturation(model, [fits, beyond], 1) == {"x_dq": pytest.approx(3 / 16)}
    assert model.SerializeToString() == before


def test_images_unlike_those_of_calibration_are_told_apart():
    near, far = image(*range(8)), image(*range(8)) * 10
    record = saturation_record(model_of(np.int8, 0), source(), [near], [near, far], 1)
    assert record == {
        "images": 2,
        "calibration": 0.0,
        "others": pytest.approx(6 / 16),
        "worst": {"unit": "layer", "share": pytest.approx(6 / 16)},
        "unlike": True,
    }
    assert not saturation_record(model_of(np.int8, 0), source(), [near], [near], 1)["unlike"]
    assert not saturation_record(model_of(np.int8, 0), source(), [far], [far], 1)["unlike"], "as bad on both"


def test_a_model_without_rounding():
    assert saturation(source(), [image(*range(8))], 1) == {}
    assert saturation_record(source(), source(), [image(*range(8))], [image(*range(8))], 1)["worst"] is None


@pytest.mark.parametrize("target", ["openvino", "tensorrt"])
def test_the_receipt_holds_it(quantize_small, target):
    clipped = json.loads((quantize_small(target) / "receipt.json").read_text())["targets"][target]["saturation"]
    assert clipped["images"] == 8 and 0 <= clipped["others"] < 0.01 and not clipped["unlike"]
    names = {node.name for node in onnx.load(quantize_small(target) / "model.onnx").graph.node}
    assert clipped["worst"]["unit"] not in names, "a module, not a node"
