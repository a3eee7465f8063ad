"""What a graph says of its outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphOutput:
    """One output of the graph.

    Args:
        name: In the graph.
        kind: See :class:`deploy.specs.OutputSpec`.
        meaning: For the reader of the manifest.
    """

    name: str
    kind: str
    meaning: str
