"""From a lowered graph to a static ONNX file of standard operators."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import onnx
import torch

from .origin import drop_traces, module_of
from .wrappers import Graph

OPSET = 18  # LayerNormalization came with 17; TensorRT 10 reads up to 20
# Operators whose output shape depends on the data, and control flow. A cubic Resize is refused too: folding removes it.
_FORBIDDEN = ("NonZero", "NonMaxSuppression", "RoiAlign", "Loop", "If", "Scan")


def export_onnx(graph: Graph, shape: tuple[int, int], path: Path, batch: int = 1) -> list[str]:
    """Writes a graph as one ONNX file with its weights inside.

    Args:
        graph: Lowered to ``shape``, in evaluation mode.
        shape: (H, W) in pixels.
        path: The file.
        batch: Images per run. Defaults to 1.

    Returns:
        Names of the outputs, in order.

    Raises:
        ValueError: The exported graph is not static or holds an operator that devices lack.
    """
    image = torch.zeros(batch, 3, *shape)
    with torch.no_grad():
        names = [output.name for output in graph.outputs(len(graph(image)))]
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):  # they report every pass at INFO
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own internals
        torch.onnx.export(
            graph,
            (image,),
            str(path),
            input_names=["image"],
            output_names=names,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    model = onnx.load(path)
    drop_traces(model)
    check_graph(model)
    onnx.save(model, path)
    return names


def check_graph(model: onnx.ModelProto) -> None:
    """Checks that a graph is static and of standard operators.

    Raises:
        ValueError: Names the node (and the module it came from) or the tensor that breaks the rule.
    """
    onnx.checker.check_model(model)
    for value in [*model.graph.input, *model.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if not dims or any(dim.dim_value <= 0 for dim in dims):
            raise ValueError(f"tensor '{value.name}' has no static shape; the bundle needs fixed sizes")
    for node in model.graph.node:
        cubic = any(item.name == "mode" and item.s == b"cubic" for item in node.attribute)
        if node.domain not in ("", "ai.onnx") or node.op_type in _FORBIDDEN or (node.op_type == "Resize" and cubic):
            kind = f"{node.domain or 'ai.onnx'}.{node.op_type}{' (cubic)' if cubic else ''}"
            raise ValueError(
                f"node '{node.name}' is a {kind}, which devices do not build; rewrite the module that it came from"
                f" ({module_of(node) or 'not noted in the file'})"
            )
