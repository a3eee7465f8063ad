"""What a source of weights has to provide, and what most of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# Heads by width where the weights do not show them (ViT arXiv:2010.11929, DeiT arXiv:2012.12877, DINOv2
# arXiv:2304.07193); not width // 64: the H sizes have 16 heads of 80.
HEADS: Mapping[int, int] = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1536: 24, 1664: 16}


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
        num_heads: Attention heads, where the source's own layout shows them. Defaults to None.
    """

    tensors: dict[str, Tensor]
    position_grid: tuple[int, int] | None
    ignored: list[str] = field(default_factory=list)
    optional: frozenset[str] = frozenset()
    interpolate_offset: float = 0.0
    interpolate_antialias: bool = False
    num_heads: int | None = None


@dataclass(frozen=True)
class Source:
    """A family of checkpoints.

    Args:
        name: How the user asks for it.
        description: One line for messages.
        matches: Whether these keys are of this source.
        convert: Renames; raises ValueError for what it does not know.
        norm_eps: Epsilon of the family's LayerNorms. Defaults to 1e-6.
        heads: Attention heads by width. Defaults to :data:`HEADS`.
        options: What else the family implies for :class:`vitdense.models.ViT`. Defaults to none.
        window_size: Of families with windows; their weights run as global blocks too, but wrongly. Defaults to 0.
        global_blocks: Global blocks by depth, for families with windows. Defaults to none.
        shared_with: Other sources whose files look the same and resize their position table differently.
    """

    name: str
    description: str
    matches: Callable[[Mapping[str, Tensor]], bool]
    convert: Callable[[Mapping[str, Tensor]], ConvertedWeights]
    norm_eps: float = 1e-6
    heads: Mapping[int, int] = field(default_factory=lambda: HEADS)
    options: Mapping[str, Any] = field(default_factory=dict)
    window_size: int = 0
    global_blocks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    shared_with: tuple[str, ...] = ()


def has(state: Mapping[str, Tensor], *endings: str) -> bool:
    """Whether any key ends in one of ``endings``, at the start of a dotted part."""
    return any(key == ending or key.endswith("." + ending) for key in state for ending in endings)


def rename(
    state: Mapping[str, Tensor],
    anchor: str,
    rules: Sequence[tuple[str, str]],
    ignored: Sequence[str],
    *,
    no_key_bias: bool = False,
) -> tuple[dict[str, Tensor], list[str]]:
    """Takes a backbone out of a state dict and renames its tensors by the first rule that matches the whole name.

    Args:
        state: By the source's name.
        anchor: A name that the backbone has exactly once, e.g. 'patch_embed.proj.weight'; what stands before it in the
            state dict is the backbone's prefix.
        rules: Pattern of a name behind the prefix, and its replacement.
        ignored: Patterns of names that are documented as unused: behind the prefix inside the backbone, whole outside.
        no_key_bias: Whether the family has biases on q and v alone; that of the key is then zero. Defaults to False.

    Returns:
        Tensors by our name, with q, k and v joined, and the ignored names. A name that no pattern knows is kept whole:
        the strict load names it.

    Raises:
        ValueError: No tensor, or several, end in ``anchor``; or two have names that mean the same.
    """
    found = [key for key in state if key == anchor or key.endswith("." + anchor)]
    if len(found) != 1:
        raise ValueError(f"these weights hold {len(found)} tensors named {anchor}, expected one: {found[:4]}")
    prefix = found[0].removesuffix(anchor)
    tensors: dict[str, Tensor] = {}
    origins: dict[str, str] = {}
    unused: list[str] = []
    for key, value in state.items():
        name = key.removeprefix(prefix)
        inside = key.startswith(prefix)
        match = next((m for pattern, to in rules if (m := _replace(pattern, to, name))), None) if inside else None
        if match is None and any(re.fullmatch(pattern, name) for pattern in ignored):
            unused.append(key)
            continue
        target = key if match is None else match
        if target in tensors:
            raise ValueError(f"{origins[target]} and {key} of these weights are both {target} of a ViT")
        tensors[target], origins[target] = value, key
    return join_qkv(tensors, no_key_bias), unused


def _replace(pattern: str, replacement: str, key: str) -> str | None:
    match = re.fullmatch(pattern, key)
    return match.expand(replacement) if match else None


def join_qkv(tensors: dict[str, Tensor], no_key_bias: bool) -> dict[str, Tensor]:
    """Joins ``blocks.i.attn.q``, ``.k`` and ``.v`` into ``blocks.i.attn.qkv``.

    Raises:
        ValueError: One of the three is missing, or they differ in shape.
    """
    parts: dict[tuple[str, str], dict[str, Tensor]] = {}
    joined = {}
    for name, value in tensors.items():
        if match := re.fullmatch(r"(blocks\.\d+\.attn)\.([qkv])\.(weight|bias)", name):
            parts.setdefault((match[1], match[3]), {})[match[2]] = value
        else:
            joined[name] = value
    for (prefix, kind), found in parts.items():
        if kind == "bias" and no_key_bias and set(found) == {"q", "v"}:
            found["k"] = torch.zeros_like(found["q"])
        if missing := {"q", "k", "v"} - set(found):
            raise ValueError(f"{prefix} lacks the {kind} of {sorted(missing)}")
        if len({part.shape for part in found.values()}) > 1:
            raise ValueError(f"{prefix} has a {kind} of {[tuple(found[part].shape) for part in 'qkv']} for q, k and v")
        joined[f"{prefix}.qkv.{kind}"] = torch.cat([found["q"], found["k"], found["v"]])
    return joined


def require_features(tensors: Mapping[str, Tensor], family: str) -> None:
    """Raises ValueError where final norm or LayerScale are missing, which the features of this family need."""
    blocks = {match[0] for name in tensors if (match := re.match(r"blocks\.\d+", name))}
    wanted = {"norm.weight", "norm.bias"} | {f"{block}.{scale}.gamma" for block in blocks for scale in ("ls1", "ls2")}
    if missing := sorted(wanted - set(tensors)):
        raise ValueError(f"these weights lack {missing[:4]}: the features of {family} need LayerScale and a final norm")


def square_grid(entries: int, name: str) -> tuple[int, int]:
    """Side of a square table with ``entries`` patches.

    Raises:
        ValueError: ``entries`` is no square.
    """
    side = round(entries**0.5)
    if side * side != entries:
        raise ValueError(f"{name} holds {entries} patch positions, which is no square grid")
    return side, side


def add_cls_position(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gives the cls token the position zero where the table has none for it, as DeiT III and timm's registers do."""
    table = tensors.get("pos_embed.weight")
    if table is None or "cls_token" not in tensors or round(table.shape[1] ** 0.5) ** 2 != table.shape[1]:
        return tensors
    return {**tensors, "pos_embed.weight": torch.cat([torch.zeros_like(table[:, :1]), table], dim=1)}


def table_grid(tensors: Mapping[str, Tensor], prefix_entries: int = 1) -> tuple[int, int] | None:
    """Grid of a square position table that starts with ``prefix_entries`` tokens; None where there is no table."""
    table = tensors.get("pos_embed.weight")
    return None if table is None else square_grid(table.shape[1] - prefix_entries, "the position table")
