"""SmoothQuant's factors in the norms: the same result with fewer nodes, and left where they cannot move."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vitdense.quant.smooth import fold_into_norms

RNG = np.random.default_rng(1)


def model(also_used, windows):
    """Norm, factor, product; the norm may feed something else as well, and its tokens be arranged in windows."""
    constants = {
        "weight": RNG.normal(1, 0.1, 6),
        "bias": RNG.normal(0, 0.1, 6),
        "factor": RNG.uniform(0.2, 3, (1, 1, 6)),
        "w": RNG.normal(0, 0.5, (6, 4)),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "weight", "bias"], ["n"], name="norm", axis=-1),
        *([helper.make_node("Reshape", ["n", "shape"], ["windows"], name="arrange")] if windows else []),
        helper.make_node("Mul", ["windows" if windows else "n", "factor"], ["s"], name="norm_0_0/nncf_smooth_quant"),
        helper.make_node("MatMul", ["s", "w"], ["y"], name="product"),
        helper.make_node("Relu", ["n" if also_used else "y"], ["z"], name="other"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")]
    tensors = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in constants.items()]
    tensors += [numpy_helper.from_array(np.array(windows, np.int64), "shape")] if windows else []
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6, 6))]
    whole = helper.make_graph(nodes, "g", inputs, ports, tensors)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    )


@pytest.mark.parametrize("windows", [(), (4, 3, 6), (3, 4, 1, 6)])
@pytest.mark.parametrize("also_used", [False, True])
def test_the_result_stays(also_used, windows):
    before = model(also_used, windows)
    x = RNG.normal(size=(2, 6, 6)).astype(np.float32)
    expected = onnxruntime.InferenceSession(before.SerializeToString()).run(None, {"x": x})
    folded = fold_into_norms(before)
    onnx.checker.check_model(folded)
    found = onnxruntime.InferenceSession(folded.SerializeToString()).run(None, {"x": x})
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert ("Mul" in {node.op_type for node in folded.graph.node}) == also_used


def test_a_reshape_that_mixes_channels_is_no_way_through():
    before = model(False, (2, 12, 3))
    constants = {tensor.name: tensor for tensor in before.graph.initializer}
    constants["factor"].CopyFrom(numpy_helper.from_array(np.array([1, 2, 3], np.float32).reshape(1, 1, 3), "factor"))
    constants["w"].CopyFrom(numpy_helper.from_array(RNG.normal(size=(3, 4)).astype(np.float32), "w"))
    del before.graph.value_info[:]
    assert "Mul" in {node.op_type for node in fold_into_norms(before).graph.node}
