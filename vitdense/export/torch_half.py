"""An exported program in half precision with every type written out: what :mod:`vitdense.quant.half` is for ONNX."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

_POSTPROCESSING = "vitdense.export.detection."
_TRAINED = ("conv", "linear", "matmul", "addmm")  # operators that multiply with weights
_LARGEST = torch.finfo(torch.float16).max


class HalfProgram(nn.Module):
    """The graph of an exported program, computing in float16 but for what decodes boxes.

    Exported once more it is a program with a cast wherever the precision changes, which a compiler that takes types as
    they are written (Torch-TensorRT with explicit typing, its only kind from 2.13 on) leaves as it is. Input and
    outputs keep their types.

    Args:
        program: Static, with all its float tensors in float32; its weights are copied.

    Raises:
        ValueError: A weight exceeds the range of float16; it is named.
    """

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        graph = program.module()
        assert isinstance(graph, fx.GraphModule)
        self.kept = decoding_nodes(graph)
        for node in graph.graph.nodes:
            users = [user for user in node.users if user.op == "call_function"]
            if node.op == "get_attr" and users and not any(user.name in self.kept for user in users):
                _halve(graph, str(node.target))
        self.graph_module = graph

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """What the program gives for (N, 3, H, W)."""
        outputs = _Caster(self.graph_module, self.kept).run(image)
        return tuple(value.float() if value.dtype == torch.float16 else value for value in outputs)


def decoding_nodes(graph: fx.GraphModule) -> set[str]:
    """Names of the nodes behind a detector's last predictors, as :func:`vitdense.quant.scope.decoding_nodes` says.

    Coordinates of 640 pixels are off by half a pixel in float16, and overlaps are exact comparisons.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    post: set[fx.Node] = set()
    for node in nodes:
        classes = [_name(kind) for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
        if classes[-1].startswith(_POSTPROCESSING) if classes else post & set(node.all_input_nodes):
            post.add(node)
    if not post:
        return set()
    trained = {node for node in nodes if node not in post and _has_weights(node)}
    reaching: set[fx.Node] = set()  # what a further layer reads, walking backwards
    predictors = set()
    for node in reversed(nodes):
        if node in trained and node not in reaching:
            predictors.add(node)
        if node in trained or (node in reaching and node not in post):
            reaching |= set(node.all_input_nodes)
    behind: set[fx.Node] = set()
    for node in nodes:
        if node not in trained and set(node.all_input_nodes) & (predictors | behind):
            behind.add(node)
    return {node.name for node in post | behind}


class _Caster(fx.Interpreter):
    """Runs a graph with the float inputs of each node in the precision of that node."""

    def __init__(self, graph: fx.GraphModule, kept: set[str]) -> None:
        super().__init__(graph)
        self._kept = kept
        self._cast: dict[tuple[fx.Node, torch.dtype], Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        dtype = torch.float32 if n.name in self._kept else torch.float16
        args, kwargs = (fx.node.map_arg(part, lambda node: self._in(node, dtype)) for part in (n.args, n.kwargs))
        if dtype == torch.float16:  # what names its type: constants, conversions
            args, kwargs = (fx.node.map_aggregate(part, _named_half) for part in (args, kwargs))
        return self.call_function(n.target, args, kwargs)  # type: ignore[arg-type]

    def _in(self, node: fx.Node, dtype: torch.dtype) -> Any:
        value = self.env[node]
        if not isinstance(value, Tensor) or value.dtype not in (torch.float16, torch.float32) or value.dtype == dtype:
            return value
        if (node, dtype) not in self._cast:
            self._cast[node, dtype] = value.to(dtype)
        return self._cast[node, dtype]


def _named_half(argument: Any) -> Any:
    return torch.float16 if argument is torch.float32 else argument


def _has_weights(node: fx.Node) -> bool:
    operator = str(node.target)
    return any(part in operator for part in _TRAINED) and any(item.op == "get_attr" for item in node.all_input_nodes)


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _halve(graph: fx.GraphModule, target: str) -> None:
    """Turns a float32 weight into float16, in place of the module that holds it."""
    path, _, name = target.rpartition(".")
    owner = graph.get_submodule(path)
    value = getattr(owner, name)
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return
    if value.abs().max() > _LARGEST:
        raise ValueError(f"{target} holds {value.abs().max():.3g}, more than float16 can ({_LARGEST:.0f})")
    half = value.detach().half()
    if isinstance(value, nn.Parameter):
        setattr(owner, name, nn.Parameter(half, requires_grad=False))
    else:
        setattr(owner, name, half)
