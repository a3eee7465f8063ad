"""Widths and depths of the published Vision Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Arch:
    """Size of a plain Vision Transformer.

    Args:
        embed_dims: Width of a token.
        depth: Number of blocks.
        num_heads: Attention heads per block; divides ``embed_dims``.
        mlp_ratio: Hidden width of the MLP over ``embed_dims``.
    """

    embed_dims: int
    depth: int
    num_heads: int
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        if min(self.embed_dims, self.depth, self.num_heads) < 1 or not 0 < self.mlp_ratio < float("inf"):
            raise ValueError(f"every size of a ViT must be positive, got {self}")
        if self.embed_dims % self.num_heads:
            raise ValueError(
                f"embed_dims={self.embed_dims} does not divide into num_heads={self.num_heads} heads of equal width; "
                "choose num_heads among the divisors of embed_dims"
            )


# Ti and S: DeiT (arXiv:2012.12877), table 1. B, L and H: ViT (arXiv:2010.11929), table 1; H has 16 heads of 80.
# giant: DINOv2 (arXiv:2304.07193), with the gated MLP (mlp='swiglu').
ARCHS: dict[str, Arch] = {
    "tiny": Arch(embed_dims=192, depth=12, num_heads=3),
    "small": Arch(embed_dims=384, depth=12, num_heads=6),
    "base": Arch(embed_dims=768, depth=12, num_heads=12),
    "large": Arch(embed_dims=1024, depth=24, num_heads=16),
    "huge": Arch(embed_dims=1280, depth=32, num_heads=16),
    "giant": Arch(embed_dims=1536, depth=40, num_heads=24, mlp_ratio=8 / 3),
}


def resolve_arch(arch: str | Mapping[str, float]) -> Arch:
    """Turns ``'small'`` or a dict of sizes into an :class:`Arch`.

    Raises:
        ValueError: Unknown name, or a dict with missing or unknown keys.
    """
    if isinstance(arch, str):
        if arch not in ARCHS:
            raise ValueError(f"arch='{arch}' is unknown; choose one of {sorted(ARCHS)} or give a dict of sizes")
        return ARCHS[arch]
    known = [field.name for field in fields(Arch)]
    unknown = sorted(set(arch) - set(known))
    missing = sorted({"embed_dims", "depth", "num_heads"} - set(arch))
    if unknown or missing:
        raise ValueError(f"arch dict: missing keys {missing}, unknown keys {unknown}; it takes {known}")
    return Arch(**arch)  # type: ignore[arg-type]
