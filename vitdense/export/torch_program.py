"""From a lowered graph to an exported program of PyTorch, for those who stay in Python."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn


def trace_program(graph: nn.Module, shape: tuple[int, int], batch: int = 1) -> torch.export.ExportedProgram:
    """Traces a graph as one exported program, static and without breaks.

    Args:
        graph: Lowered to ``shape``, in evaluation mode.
        shape: (H, W) in pixels.
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
    return program


def save_program(program: torch.export.ExportedProgram, path: Path) -> None:
    """Writes a program (``.pt2``) without the paths of this machine."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
    torch.export.save(program, str(path))
