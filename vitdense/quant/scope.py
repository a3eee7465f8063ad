"""Which nodes of an exported graph are quantized, and which keep more bits whatever the recipe."""

from __future__ import annotations

import onnx

from ..export.origin import module_classes

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_POSTPROCESSING = "vitdense.export.detection."
_PATCH_EMBEDDING = "vitdense.models.vit.PatchEmbed"
_RELATIVE_POSITION = "vitdense.export.lowering.FixedRelativePosition"


def postprocessing_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes that turn a detector's predictions into objects, in the order of the graph.

    Coordinates need more than 8 bits (640 pixels in 256 steps are 2.5 pixels) and more than float16 has (half a pixel
    there), and overlaps and the rounds of suppression are exact comparisons.

    Args:
        model: As :func:`vitdense.export.onnx_export.export_onnx` wrote it, with the modules that the nodes came from.
    """
    found: list[str] = []
    tensors: set[str] = set()  # what they give
    for node in model.graph.node:
        modules = module_classes(node)
        # A node that the exporter made itself (a cast in the middle of index arithmetic) belongs to what it reads.
        if modules[-1].startswith(_POSTPROCESSING) if modules else tensors & set(node.input):
            found.append(node.name)
            tensors |= set(node.output)
    return found


def decoding_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes behind a detector's last predictors: its post-processing, and what a head does before that.

    RTMDet's head takes the exponential of its distances and multiplies it with the stride: coordinates already.
    """
    post, trained = set(postprocessing_nodes(model)), set(layers(model))
    predicted: set[str] = set()
    predictors = set(last_predictors(model)) if post else set()
    found = []
    for node in model.graph.node:
        behind = node.name not in trained and bool(predicted & set(node.input))
        if node.name in post or behind:
            found.append(node.name)
        if node.name in predictors or behind:
            predicted |= set(node.output)
    return found


def layers(model: onnx.ModelProto) -> list[str]:
    """Names of the linear layers and convolutions: products of an activation with trained weights."""
    constants = {tensor.name for tensor in model.graph.initializer}
    post = set(postprocessing_nodes(model))
    return [
        node.name
        for node in model.graph.node
        if node.op_type in LAYERS and node.name not in post and not _is_table(node) and constants & set(node.input)
    ]


def last_predictors(model: onnx.ModelProto) -> list[str]:
    """Names of the layers whose result reaches no further layer: they are cheap, and their scores are thresholded."""
    trained, post = set(layers(model)), set(postprocessing_nodes(model))
    feeds_layer: set[str] = set()  # tensors, walking backwards
    found = []
    for node in reversed(model.graph.node):
        reaches = bool(feeds_layer & set(node.output))
        if node.name in trained and not reaches:
            found.append(node.name)
        # Boxes choose where a second stage looks; what predicts them is a last predictor all the same.
        if node.name in trained or (reaches and node.name not in post):
            feeds_layer |= set(node.input)
    return found[::-1]


def attention_products(model: onnx.ModelProto) -> list[str]:
    """Names of the products in an attention: of query with key and position tables, of their softmax with value."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and (_is_table(node) or not constants & set(node.input))
    ]


def patch_embedding(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes that turn pixels into tokens."""
    return [node.name for node in model.graph.node if _PATCH_EMBEDDING in module_classes(node)]


def transposed_convolutions(model: onnx.ModelProto) -> list[str]:
    """Names of the transposed convolutions."""
    return [node.name for node in model.graph.node if node.op_type == "ConvTranspose"]


def _is_table(node: onnx.NodeProto) -> bool:
    """Whether a node multiplies with a table of relative positions: a term of the scores, no layer."""
    return _RELATIVE_POSITION in module_classes(node)
