"""Which nodes of an exported graph are quantized, and which keep more bits whatever the recipe."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import onnx

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
        modules = _modules(node)
        # A node that the exporter made itself (a cast in the middle of index arithmetic) belongs to what it reads.
        if modules[-1].startswith(_POSTPROCESSING) if modules else tensors & set(node.input):
            found.append(node.name)
            tensors |= set(node.output)
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
    return [node.name for node in model.graph.node if _PATCH_EMBEDDING in _modules(node)]


def transposed_convolutions(model: onnx.ModelProto) -> list[str]:
    """Names of the transposed convolutions."""
    return [node.name for node in model.graph.node if node.op_type == "ConvTranspose"]


def module_of(node: onnx.NodeProto) -> str:
    """Name of the torch module that a node came from ('backbone.blocks.0.attn.q'); empty if the file does not say."""
    names = _listed(node, "pkg.torch.onnx.name_scopes")
    return names[-1] if names else ""


def _is_table(node: onnx.NodeProto) -> bool:
    """Whether a node multiplies with a table of relative positions: a term of the scores, no layer."""
    return _RELATIVE_POSITION in _modules(node)


def _modules(node: onnx.NodeProto) -> Sequence[str]:
    """Classes of the torch modules that a node came from, outermost first; empty if the file does not say."""
    return _listed(node, "pkg.torch.onnx.class_hierarchy")


def _listed(node: onnx.NodeProto, key: str) -> Sequence[str]:
    """A list that the exporter noted at a node, without its last entry, the torch operator."""
    for item in node.metadata_props:
        if item.key == key:
            entries: list[str] = ast.literal_eval(item.value)
            return entries[:-1]
    return []
