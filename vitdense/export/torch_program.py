"""From a lowered graph to an exported program of PyTorch, for those who stay in Python."""

from __future__ import annotations

from pathlib import Path

import torch

from .wrappers import Graph


def export_program(graph: Graph, shape: tuple[int, int], path: Path, batch: int = 1) -> None:
    """Writes a graph as one exported program (``.pt2``), static and without breaks.

    Args:
        graph: Lowered to ``shape``, in evaluation mode.
        shape: (H, W) in pixels.
        path: The file.
        batch: Images per run. Defaults to 1.

    Raises:
        ValueError: A size in it depends on the data.
    """
    image = torch.zeros(batch, 3, *shape)
    with torch.no_grad():
        program = torch.export.export(graph, (image,), strict=False)
    if program.range_constraints:
        names = ", ".join(str(symbol) for symbol in program.range_constraints)
        raise ValueError(f"the exported program has sizes that depend on the data ({names}); devices need fixed ones")
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # paths of this machine
    torch.export.save(program, str(path))
