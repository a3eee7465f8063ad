"""Units of a quantized graph, and giving them back their float precision."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vitdense.quant.units import pin, quantized_units

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 5, 4)).astype(np.float32)
WEIGHTS = {name: RNG.standard_normal((4, 4)).astype(np.float32) for name in ("w1", "w2", "w3")}
BIAS = RNG.standard_normal(4).astype(np.float32)
CORRECTED, FACTORS = BIAS + 0.25, np.array([1, 0.5, 2, 0.25], np.float32)
SCALE = np.float32(0.05)


def run(model, tensor):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # no integer kernels
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: tensor})


def model_of(nodes, constants):
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 5, 4]), ("y", [1, 5, 4]))]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def node(kind, inputs, output, module="", **attributes):
    made = helper.make_node(kind, inputs, [output], name=f"node_{output}", **attributes)
    made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(["", module, "op"]))
    return made


@pytest.fixture
def source():
    """Two layers that read x, and a third behind a transposed pair."""
    nodes = [
        node("MatMul", ["x", "w1"], "a", "block.q"),
        node("MatMul", ["x", "w2"], "b0", "block.k"),
        node("Add", ["b0", "bias"], "b", "block.k"),
        node("Add", ["a", "b"], "c"),
        node("Transpose", ["c"], "d", perm=[0, 2, 1]),
        node("Transpose", ["d"], "e", perm=[0, 2, 1]),
        node("MatMul", ["e", "w3"], "y", "block.proj"),
    ]
    return model_of(nodes, {**WEIGHTS, "bias": BIAS})


def rounded(values):
    return (np.clip(np.rint(values / SCALE), -128, 127) * SCALE).astype(np.float32)


@pytest.fixture
def quantized():
    """As NNCF writes it: smoothed before the first two layers, one bias corrected, rounded above the transposition."""
    constants = {"scale": SCALE, "zero": np.int8(0), "factors": FACTORS, "bias": CORRECTED}
    for name, factors in (("w1", FACTORS), ("w2", FACTORS), ("w3", np.ones(4, np.float32))):
        constants[f"{name}_int8"] = np.clip(np.rint(WEIGHTS[name] / factors[:, None] / SCALE), -128, 127).astype(
            np.int8
        )

    def pair(tensor, name):
        return [
            helper.make_node("QuantizeLinear", [tensor, "scale", "zero"], [f"{name}_q"], name=f"q_{name}"),
            helper.make_node("DequantizeLinear", [f"{name}_q", "scale", "zero"], [f"{name}_dq"], name=f"dq_{name}"),
        ]

    def weight(name):
        return helper.make_node(
            "DequantizeLinear", [f"{name}_int8", "scale", "zero"], [f"{name}_dq"], name=f"dq_{name}"
        )

    nodes = [
        helper.make_node("Mul", ["x", "factors"], ["x_smooth"], name="smooth"),
        *pair("x_smooth", "x"),
        *(weight(name) for name in WEIGHTS),
        node("MatMul", ["x_dq", "w1_dq"], "a"),
        node("MatMul", ["x_dq", "w2_dq"], "b0"),
        node("Add", ["b0", "bias"], "b"),
        node("Add", ["a", "b"], "c"),
        *pair("c", "c"),
        node("Transpose", ["c_dq"], "d", perm=[0, 2, 1]),
        node("Transpose", ["d"], "e", perm=[0, 2, 1]),
        node("MatMul", ["e", "w3_dq"], "y"),
    ]
    return model_of(nodes, constants)


def test_layers_that_share_a_rounded_tensor_are_one_unit(quantized, source):
    first, second = quantized_units(quantized, source)
    assert (first.name, first.layers, first.rounded) == ("block.{q,k}", ("node_a", "node_b0"), ("x_dq",))
    assert (second.name, second.layers, second.rounded) == ("block.proj", ("node_y",), ("c_dq",))
    assert (first.products, second.products) == (2 * 5 * 4 * 4, 5 * 4 * 4)


@pytest.mark.parametrize("pinned", [(), (0,), (1,), (0, 1)])
def test_pinned_units_compute_as_the_source_and_the_others_as_before(pinned, quantized, source):
    units = quantized_units(quantized, source)
    before = quantized.SerializeToString()
    model = pin(quantized, source, [units[index] for index in pinned])
    assert quantized.SerializeToString() == before
    onnx.checker.check_model(model, full_check=True)
    if 0 in pinned:
        c = X @ WEIGHTS["w1"] + X @ WEIGHTS["w2"] + BIAS
    else:
        w1, w2 = (rounded(WEIGHTS[name] / FACTORS[:, None]) for name in ("w1", "w2"))
        c = rounded(X * FACTORS) @ w1 + rounded(X * FACTORS) @ w2 + CORRECTED
    expected = c @ WEIGHTS["w3"] if 1 in pinned else rounded(c) @ rounded(WEIGHTS["w3"])
    np.testing.assert_allclose(run(model, X)[0], expected, atol=1e-5)
    left = {node.name for node in model.graph.node if node.op_type == "QuantizeLinear"}
    assert left == {name for index, name in enumerate(("q_x", "q_c")) if index not in pinned}
    assert ("smooth" in {node.name for node in model.graph.node}) == (0 not in pinned)


def test_a_layer_that_is_applied_twice_is_one_unit(quantized, source):
    for item in source.graph.node[6].metadata_props:
        item.value = str(["", "block.q", "op"])
    (unit,) = quantized_units(quantized, source)
    assert unit.layers == ("node_a", "node_b0", "node_y") and unit.rounded == ("x_dq", "c_dq")


def test_weights_that_nothing_pins_are_found(quantized, source):
    (transposed,) = [item for item in quantized.graph.node if item.output[0] == "d"]
    transposed.op_type = "Softplus"  # computes with what it reads: the layer behind it reads nothing that is rounded
    del transposed.attribute[:]
    with pytest.raises(ValueError, match=r"layers \['node_y'\] have rounded weights"):
        quantized_units(quantized, source)


@pytest.mark.parametrize("target", ["openvino", "tensorrt"])
def test_a_model_with_every_unit_pinned_is_the_float_model(target, quantize_small, small_segmenter):
    from deploy.reference import load_reference

    folder = quantize_small(target)
    source = onnx.load(folder / "model.onnx")
    if target == "openvino":
        quantized = onnx.load(folder / "model.openvino-int8.onnx")
    else:  # the published files are folded and in other opsets
        from vitdense.quant import TARGETS, TensorRTRecipe

        tensors = list(load_reference(folder).inputs)
        quantized = TARGETS["tensorrt"].quantize(source, "image", tensors, TensorRTRecipe())
    units = quantized_units(quantized, source)
    names = [unit.name for unit in units]
    assert len(set(names)) == len(names) >= 8 and "backbone.blocks.0.attn.{q,k,v}" in names[0] + names[1]
    layers = [layer for unit in units for layer in unit.layers]
    assert len(set(layers)) == len(layers)
    image = load_reference(folder).inputs[0]
    floating = pin(quantized, source, units)
    assert not [node.name for node in floating.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    for ours, theirs in zip(run(floating, image), run(source, image), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    partly = run(pin(quantized, source, units[1:]), image)[0]
    assert 0 < np.abs(partly - run(source, image)[0]).max() / np.abs(run(source, image)[0]).max() < 0.1
