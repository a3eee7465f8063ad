"""Which precision a file for TensorRT asks for in each layer, for the device to check its engine against."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto

from . import scope


def asked_precisions(model: onnx.ModelProto, products: Mapping[str, int], weak: bool) -> dict[str, dict[str, int]]:
    """Sorts the products of a file by the precision that is meant for them.

    Args:
        model: As it was written, with its types.
        products: Multiplications of each node that multiplies, from :func:`.units.count_products` of the float32 file;
            nodes of other names are left out.
        weak: Whether the builder chooses float16 itself, where the file says float32.

    Returns:
        Precision to node to multiplications, as in :class:`deploy.specs.FileSpec`.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    values = (*typed.graph.value_info, *typed.graph.output)
    halves = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT16}
    rounded = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    asked: dict[str, dict[str, int]] = {}
    for node in model.graph.node:
        if node.op_type not in scope.LAYERS or node.name not in products:
            continue
        if rounded & set(node.input):
            precision = "int8"
        elif weak or halves & set(node.output):
            precision = "fp16"
        else:
            precision = "fp32"
        asked.setdefault(precision, {})[node.name] = products[node.name]
    return asked
