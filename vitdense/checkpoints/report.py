"""What an import did with each weight."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ImportReport:
    """Where each tensor of a checkpoint went.

    Args:
        source: Name of the source.
        origin: File the weights came from, or 'state dict'.
        sha256: Of that file; None for a state dict.
        loaded: Our names of the tensors taken over unchanged.
        interpolated: Position tables resized, by our name, with old and new grid.
        resampled: Patch kernels changed to another patch size, by our name, with old and new side.
        ignored: Names in the source that are documented as unused.
        notes: Conventions of the source that the model does not share, and what else a user has to know.
        initialised: Our names of what ViTDet adds and the source does not have; it keeps its initial values.
    """

    source: str
    origin: str
    sha256: str | None = None
    loaded: list[str] = field(default_factory=list)
    interpolated: dict[str, str] = field(default_factory=dict)
    resampled: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    initialised: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} tensors loaded"]
        positions = self.interpolated.get("pos_embed.weight")
        relative = [name for name in self.interpolated if name != "pos_embed.weight"]
        parts += [f"pos_embed.weight interpolated {positions}"] if positions else []
        if relative:
            changes = sorted({self.interpolated[name] for name in relative})
            parts += [f"{len(relative)} relative-position tables interpolated ({', '.join(changes)})"]
        parts += [f"{name} resampled {change}" for name, change in self.resampled.items()]
        parts += [f"{len(self.ignored)} ignored"] if self.ignored else []
        parts += [f"{len(self.initialised)} not in the source, at their initial values"] if self.initialised else []
        return f"{self.source} from {self.origin}: " + "; ".join(parts + self.notes)
