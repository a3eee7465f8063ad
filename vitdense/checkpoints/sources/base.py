"""What a source of weights has to provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class ConvertedWeights:
    """Weights under the names of :class:`vitdense.models.ViT`.

    Args:
        tensors: By our name. ``pos_embed.weight`` holds the cls entry first where there is a ``cls_token``.
        position_grid: Patches along H and W of the position table; None where there is no table, or where the table is
            this project's own: then the model that takes it knows grid and convention.
        ignored: Names (in the source) that are documented as unused, for the report.
        optional: Our names that a model may do without; a model that lacks any other is an error.
        interpolate_offset: The source's convention when the table is resized at import.
        interpolate_antialias: Likewise.
    """

    tensors: dict[str, Tensor]
    position_grid: tuple[int, int] | None
    ignored: list[str] = field(default_factory=list)
    optional: frozenset[str] = frozenset()
    interpolate_offset: float = 0.0
    interpolate_antialias: bool = False


@dataclass(frozen=True)
class Source:
    """A family of checkpoints.

    Args:
        name: How the user asks for it.
        description: One line for messages.
        matches: Whether these keys are of this source.
        convert: Renames; raises ValueError for what it does not know.
    """

    name: str
    description: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[Mapping[str, Tensor]], ConvertedWeights]


def square_grid(entries: int, name: str) -> tuple[int, int]:
    """Side of a square table with ``entries`` patches.

    Raises:
        ValueError: ``entries`` is no square.
    """
    side = round(entries**0.5)
    if side * side != entries:
        raise ValueError(f"{name} holds {entries} patch positions, which is no square grid")
    return side, side
