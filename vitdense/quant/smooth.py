"""SmoothQuant's factors, moved into the norms before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper


def fold_into_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Multiplies the factors that follow a LayerNorm into its weight and bias, and takes their nodes out.

    SmoothQuant (arXiv:2211.10438) divides a layer's input by a factor per channel and multiplies its weights with it.
    NNCF writes the division as a node of its own, one more pass over the tokens. Behind a LayerNorm that feeds nothing
    else it costs nothing; tokens may be arranged in windows in between.

    Args:
        model: As NNCF wrote it; it is changed.

    Returns:
        The model.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input) + Counter(value.name for value in graph.output)
    producers = {name: node for node in graph.node for name in node.output}
    for factor in [node for node in graph.node if node.op_type == "Mul" and node.name.endswith("/nncf_smooth_quant")]:
        before = norm = producers.get(factor.input[0])
        scale = constants.get(factor.input[1])
        if before is None or scale is None:
            continue
        values = numpy_helper.to_array(scale)
        while norm is not None and uses[norm.output[0]] == 1 and _keeps_channels(norm, values.size, constants):
            norm = producers.get(norm.input[0])
        if norm is None or norm.op_type != "LayerNormalization" or uses[norm.output[0]] != 1:
            continue
        if any(uses[name] != 1 for name in norm.input[1:]) or values.size != values.shape[-1]:
            continue
        if list(constants[norm.input[1]].dims) != [values.size]:  # what was arranged had other channels
            continue
        for name in norm.input[1:]:
            folded = numpy_helper.to_array(constants[name]) * values.reshape(-1)
            constants[name].CopyFrom(numpy_helper.from_array(folded.astype(np.float32), name))
        before.output[0] = factor.output[0]
        graph.node.remove(factor)
    return model


def _keeps_channels(node: onnx.NodeProto, channels: int, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node only arranges tokens: a Reshape that leaves the last axis with its channels."""
    shape = constants.get(node.input[1]) if node.op_type == "Reshape" else None
    return shape is not None and int(numpy_helper.to_array(shape)[-1]) == channels
