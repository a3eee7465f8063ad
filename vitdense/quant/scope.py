"""Which nodes of an exported graph stay in float, whatever the recipe."""

from __future__ import annotations

import ast

import onnx

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_POSTPROCESSING = "vitdense.export.detection."


def float_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes of a detector that are never quantized, in the order of the graph.

    Coordinates of boxes need more than 8 bits (640 pixels in 256 steps are 2.5 pixels), and overlaps and the rounds of
    suppression are exact comparisons: everything that comes from :mod:`vitdense.export.detection` stays in float. So do
    the last predictors, the layers with weights of which nothing but post-processing makes use: they are cheap, and
    their scores are what is thresholded.

    Args:
        model: As :func:`vitdense.export.onnx_export.export_onnx` wrote it, with the modules that the nodes came from.

    Returns:
        Nothing for a segmenter or a backbone.
    """
    post = {node.name for node in model.graph.node if _module_class(node).startswith(_POSTPROCESSING)}
    if not post:
        return []
    constants = {tensor.name for tensor in model.graph.initializer}
    weighted = {
        node.name
        for node in model.graph.node
        if node.op_type in _WEIGHTED and node.name not in post and any(name in constants for name in node.input)
    }
    # Backwards through the graph: whether what a node computes reaches another layer with weights.
    feeds_layer: dict[str, bool] = {}
    predictors = set()
    for node in reversed(model.graph.node):
        reaches = any(feeds_layer.get(name, False) for name in node.output)
        if node.name in weighted and not reaches:
            predictors.add(node.name)
        for name in node.input:
            feeds_layer[name] = feeds_layer.get(name, False) or reaches or node.name in weighted
    return [node.name for node in model.graph.node if node.name in post | predictors]


def attention_products(model: onnx.ModelProto) -> list[str]:
    """Names of the products of two activations: query with key, and their softmax with value."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [n.name for n in model.graph.node if n.op_type == "MatMul" and not constants & set(n.input)]


def _module_class(node: onnx.NodeProto) -> str:
    """The innermost torch module that a node came from; '' if the file does not say."""
    for item in node.metadata_props:
        if item.key == "pkg.torch.onnx.class_hierarchy":
            classes: list[str] = ast.literal_eval(item.value)  # outermost module first, the torch operator last
            return classes[-2] if len(classes) > 1 else ""
    return ""
