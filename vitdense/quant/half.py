"""An ONNX graph in half precision with every type written out, for strongly typed engines."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FIXED_INPUTS = {"Resize": (1, 2)}  # the standard wants float32 there
_LARGEST = float(np.finfo(np.float16).max)
_SMALLEST = np.finfo(np.float16).smallest_subnormal


def to_half(model: onnx.ModelProto, kept: Collection[str]) -> onnx.ModelProto:
    """Turns a float32 graph into one that computes in float16, with a Cast wherever the precision changes.

    Inputs and outputs keep their types. A strongly typed engine (TensorRT's only kind from 11 on) takes the precision
    of each layer from its tensors, so nothing is left to the builder. Scales of Q/DQ nodes become float16 as well,
    which the standard allows from opset 19 on.

    Args:
        model: Static, with all its float tensors in float32.
        kept: Names of nodes that stay in float32: coordinates of 640 pixels are off by half a pixel in float16.

    Returns:
        A new model.

    Raises:
        ValueError: A constant exceeds the range of float16; it is named.
    """
    result = onnx.ModelProto()
    result.CopyFrom(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    graph = result.graph
    values = [*graph.input, *graph.value_info, *graph.output]
    floats = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
    outputs = {value.name for value in graph.output}
    # What each float tensor is called in float16 and in float32, as far as it exists so.
    halves: dict[str, str] = {}
    wholes = {value.name: value.name for value in graph.input}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        half = node.name not in kept
        for index, name in enumerate(node.input):
            if not half or index in _FIXED_INPUTS.get(node.op_type, ()):
                if name in floats and name not in constants:
                    node.input[index] = _named(wholes, name, halves.get(name), nodes)
            elif name in constants:
                node.input[index] = f"{name}_half"
            elif name in floats:
                node.input[index] = _named(halves, name, wholes.get(name), nodes)
        nodes.append(node)
        if half:
            _retype(node)
        for index, name in enumerate(node.output):
            if name not in floats:
                continue
            if not half:
                wholes[name] = name
                continue
            node.output[index] = halves[name] = f"{name}_half"
            if name in outputs:
                _named(wholes, name, halves[name], nodes)
    used = {name for node in nodes for name in node.input}
    stored = [tensor for tensor in graph.initializer if tensor.name in used]
    stored += [_half(tensor, f"{name}_half") for name, tensor in constants.items() if f"{name}_half" in used]
    for field in (graph.node, graph.initializer, graph.value_info):
        del field[:]
    graph.node.extend(nodes)
    graph.initializer.extend(stored)
    onnx.checker.check_model(result, full_check=True)
    return result


def _named(names: dict[str, str], tensor: str, other: str | None, nodes: list[onnx.NodeProto]) -> str:
    """The name of a tensor in one precision; if it exists only in the other, ``other``, a Cast is appended."""
    if tensor not in names:
        half = other == tensor  # a float32 tensor carries its own name
        names[tensor] = f"{tensor}_half" if half else tensor
        kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        nodes.append(
            helper.make_node("Cast", [other or tensor], [names[tensor]], name=f"cast_{names[tensor]}", to=kind)
        )
    return names[tensor]


def _half(tensor: TensorProto, name: str) -> TensorProto:
    values = numpy_helper.to_array(tensor)
    reached = float(np.abs(values, where=np.isfinite(values), out=np.zeros_like(values)).max(initial=0))
    if reached > _LARGEST:
        raise ValueError(f"the constant '{tensor.name}' reaches {reached:g}; float16 ends at {_LARGEST:g}")
    rounded = values.astype(np.float16)
    vanished = (rounded == 0) & (values != 0)  # a scale of zero would be divided by
    return numpy_helper.from_array(np.where(vanished, np.sign(values) * _SMALLEST, rounded).astype(np.float16), name)


def _retype(node: onnx.NodeProto) -> None:
    """Types that a node states itself: the target of a Cast, the value of a constant."""
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.FLOAT16
        elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == TensorProto.FLOAT:
            attribute.t.CopyFrom(_half(attribute.t, attribute.t.name))
