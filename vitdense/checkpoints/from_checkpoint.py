"""Building the ViT that fits a checkpoint."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..models import ViT, resolve_arch
from .conventions import OWN
from .pretrained import Weights, choose_source, convert_weights, load_weights, misshapen, read_weights
from .report import ImportReport
from .sources import ConvertedWeights, Source


def vit_from_checkpoint(
    path_or_state_dict: str | Path | Mapping[str, Tensor],
    source: str = "auto",
    *,
    num_heads: int | None = None,
    **overrides: Any,
) -> tuple[ViT, ImportReport]:
    """Builds the ViT that fits a checkpoint and loads it.

    Width, depth, patch, grid, tokens, LayerScale, relative position, windows and the kind of MLP are read from the
    weights; heads from the width of a relative-position vector or the columns of a bias table, else from the family's
    table of sizes; epsilon, rotary base and windows without tables from the family. A file under this project's own
    names is built as tools/convert_checkpoint.py recorded in it.

    Args:
        path_or_state_dict: As for :func:`load_pretrained`.
        source: Likewise.
        num_heads: Attention heads, where neither weights nor family tell.
        **overrides: Arguments of :class:`ViT` that replace what was found, e.g. ``window_size=14``.

    Returns:
        The ViT, and the report of the import.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Unknown weights; a plain ViT of no named source, because the family decides how its positions are
            resized; or a width for which the number of heads is not known.
    """
    weights = read_weights(path_or_state_dict)
    model = ViT(**{**fitting_options(weights, source, num_heads), **overrides})
    return model, load_weights(model, weights, source)


def vit_options(
    path_or_state_dict: str | Path | Mapping[str, Tensor], source: str = "auto", *, num_heads: int | None = None
) -> dict[str, Any]:
    """Arguments of the :class:`ViT` that fits a checkpoint, as a config names them.

    Args:
        path_or_state_dict: As for :func:`load_pretrained`.
        source: Likewise.
        num_heads: Attention heads, where neither weights nor family tell.

    Raises:
        FileNotFoundError: No such file.
        ValueError: There is no patch embedding, or the number of heads is not known.
    """
    return fitting_options(read_weights(path_or_state_dict), source, num_heads)


def fitting_options(weights: Weights, source: str, num_heads: int | None) -> dict[str, Any]:
    """:func:`vit_options` for weights that were read already."""
    chosen = choose_source(source, weights)
    if num_heads is not None and num_heads < 1:
        raise ValueError(f"num_heads={num_heads} must be positive")
    if chosen.name == OWN:
        if num_heads is not None:
            raise ValueError("num_heads is recorded in weights of this project; leave it out")
        return _recorded_options(weights)
    if source == "auto" and chosen.shared_with:
        raise ValueError(
            f"the weights of {weights.origin} are {chosen.description}, and these families resize positions "
            f"differently: say which it is with source={chosen.name!r} or one of {list(chosen.shared_with)} "
            "(--source on the command line)"
        )
    converted = convert_weights(chosen, weights)
    with misshapen(weights, chosen):
        return _options(converted, chosen, num_heads)


def _recorded_options(weights: Weights) -> dict[str, Any]:
    """What tools/convert_checkpoint.py wrote beside the weights: names and shapes alone do not say all of it."""
    if weights.recorded is None:
        raise ValueError(
            "weights of this project do not say how their ViT was built (positions, windows, epsilon): build it from "
            "its config and use load_pretrained, or give a file of tools/convert_checkpoint.py"
        )
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in weights.recorded.items()}
    blocks = {int(match[1]) for name in weights.state if (match := re.match(r"(?:backbone\.)?blocks\.(\d+)\.", name))}
    try:
        known = set(options) <= set(inspect.signature(ViT).parameters)
        if not known or resolve_arch(options["arch"]).depth != len(blocks):
            raise ValueError("other arguments or another depth than the weights")
        return options
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{weights.origin}: the record of its ViT is damaged ({error}); convert it again") from None


def _options(converted: ConvertedWeights, source: Source, num_heads: int | None) -> dict[str, Any]:
    tensors = converted.tensors
    kernel = tensors.get("patch_embed.proj.weight")
    blocks = {int(match[1]) for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    if kernel is None or not blocks:
        raise ValueError(f"these weights ({source.description}) hold no patch embedding and blocks of a ViT")
    if missing := set(range(min(max(blocks), len(blocks)) + 1)) - blocks:
        raise ValueError(f"these weights ({source.description}) have a block {max(blocks)} but none {min(missing)}")
    dims, channels, patch_size = kernel.shape[0], kernel.shape[1], kernel.shape[-1]
    gated = "blocks.0.mlp.w3.weight" in tensors
    hidden = tensors["blocks.0.mlp.w3.weight" if gated else "blocks.0.mlp.fc2.weight"].shape[1]
    shown = converted.num_heads or _shown_heads(tensors, dims)
    if None not in (num_heads, shown) and num_heads != shown:
        raise ValueError(f"num_heads={num_heads}, but the weights show {shown} heads")
    heads = shown or num_heads or _family_heads(source, dims)
    options: dict[str, Any] = dict(
        arch=dict(embed_dims=dims, depth=max(blocks) + 1, num_heads=heads, mlp_ratio=hidden / dims),
        patch_size=patch_size,
        in_channels=channels,
        mlp="swiglu" if gated else "gelu",
        qkv_bias="blocks.0.attn.qkv.bias" in tensors,
        with_cls_token="cls_token" in tensors,
        num_register_tokens=tensors["register_tokens"].shape[1] if "register_tokens" in tensors else 0,
        final_norm="norm.weight" in tensors and "norm.weight" not in converted.optional,
        norm_eps=source.norm_eps,
        interpolate_offset=converted.interpolate_offset,
        interpolate_antialias=converted.interpolate_antialias,
        pos_embed="learned" if "pos_embed.weight" in tensors else "none",
    )
    if "blocks.0.ls1.gamma" in tensors:
        options["layer_scale_init"] = 1.0
    if converted.position_grid is not None:
        options["pretrain_img_size"] = tuple(side * patch_size for side in converted.position_grid)
    options.update(_relative_options(tensors, source, len(blocks), patch_size))
    residual = {int(match[1]) for name in tensors if (match := re.match(r"blocks\.(\d+)\.residual\.", name))}
    return {**options, "residual_block_indexes": tuple(sorted(residual)), **source.options}


def _shown_heads(tensors: Mapping[str, Tensor], dims: int) -> int | None:
    """Heads as the tables of relative positions show them; None without tables."""
    if "blocks.0.attn.rel_pos.height" in tensors:
        return dims // tensors["blocks.0.attn.rel_pos.height"].shape[1]
    if "blocks.0.attn.rel_pos.table" in tensors:
        return int(tensors["blocks.0.attn.rel_pos.table"].shape[1])
    return None


def _family_heads(source: Source, dims: int) -> int:
    if dims not in source.heads:
        raise ValueError(
            f"the weights ({source.description}) do not show their number of attention heads, and width {dims} is none "
            f"of the sizes known for them ({sorted(source.heads)}): give num_heads (--num-heads)"
        )
    return source.heads[dims]


def _relative_options(tensors: Mapping[str, Tensor], source: Source, depth: int, patch_size: int) -> dict[str, Any]:
    """Kind and sizes of relative positions; the larger tables are those of global blocks, the smaller give windows."""
    if "blocks.0.attn.rel_pos.table" in tensors:
        side = (round((tensors["blocks.0.attn.rel_pos.table"].shape[0] - 3) ** 0.5) + 1) // 2
        return dict(rel_pos_bias=True, img_size=side * patch_size)
    if "blocks.0.attn.rel_pos.height" not in tensors:
        return _windows(source, depth)
    names = ("height", "width")
    sizes = [
        tuple((tensors[f"blocks.{i}.attn.rel_pos.{name}"].shape[0] + 1) // 2 for name in names) for i in range(depth)
    ]
    if len(set(sizes)) > 2:
        raise ValueError(f"relative positions of {len(set(sizes))} sizes ({sorted(set(sizes))}); expected two at most")
    large, small = max(sizes), min(sizes)
    options: dict[str, Any] = dict(use_rel_pos=True, img_size=tuple(side * patch_size for side in large))
    if large != small:
        options["global_attn_indexes"] = tuple(i for i, size in enumerate(sizes) if size == large)
        options["window_size"] = small[0]
    else:  # a model for images of one window: its tables are all of one size
        options.update(_windows(source, depth))
    return options


def _windows(source: Source, depth: int) -> dict[str, Any]:
    """Windows as the family publishes them, where no table shows them; none for families without."""
    if not source.window_size:
        return {}
    if depth not in source.global_blocks:
        raise ValueError(
            f"the weights ({source.description}) do not show their windows, and a depth of {depth} is none of the "
            f"published ones ({sorted(source.global_blocks)}): build the ViT and use load_pretrained"
        )
    return dict(window_size=source.window_size, global_attn_indexes=source.global_blocks[depth])
