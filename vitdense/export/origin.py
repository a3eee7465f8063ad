"""Which torch modules the nodes of an exported graph came from, as the exporter noted it at each node."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import onnx

_NAMES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"


def module_of(node: onnx.NodeProto) -> str:
    """Name of the innermost module ('backbone.blocks.0.attn.q'); empty if the file does not say."""
    names = _listed(node, _NAMES)
    return names[-1] if names else ""


def module_classes(node: onnx.NodeProto) -> Sequence[str]:
    """Classes of the modules, outermost first; empty if the file does not say."""
    return _listed(node, _CLASSES)


def drop_traces(model: onnx.ModelProto) -> None:
    """Takes everything else that the exporter noted out of a model: stack traces with the paths of this machine."""
    graph = model.graph
    for item in (model, graph, *graph.input, *graph.output, *graph.initializer, *graph.value_info, *graph.node):
        kept = [entry for entry in item.metadata_props if entry.key in (_NAMES, _CLASSES)]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)


def _listed(node: onnx.NodeProto, key: str) -> Sequence[str]:
    """A list at a node without its last entry, the torch operator."""
    for item in node.metadata_props:
        if item.key == key:
            entries: list[str] = ast.literal_eval(item.value)
            return entries[:-1]
    return []
