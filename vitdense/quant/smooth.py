"""SmoothQuant's factors, moved into the norms before them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper


def fold_into_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Multiplies the factors that follow a LayerNorm into its weight and bias, and takes their nodes out.

    SmoothQuant (arXiv:2211.10438) divides a layer's input by a factor per channel and multiplies its weights with it.
    NNCF writes the division as a node of its own, one more pass over the tokens. Behind a LayerNorm that feeds nothing
    else it costs nothing.

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
        norm = producers.get(factor.input[0])
        scale = constants.get(factor.input[1])
        if norm is None or scale is None or norm.op_type != "LayerNormalization" or uses[norm.output[0]] != 1:
            continue
        values = numpy_helper.to_array(scale)
        if any(uses[name] != 1 for name in norm.input[1:]) or values.size != values.shape[-1]:
            continue
        for name in norm.input[1:]:
            folded = numpy_helper.to_array(constants[name]) * values.reshape(-1)
            constants[name].CopyFrom(numpy_helper.from_array(folded.astype(np.float32), name))
        norm.output[0] = factor.output[0]
        graph.node.remove(factor)
    return model
