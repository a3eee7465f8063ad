"""What the weights of a family need besides their tensors, compared with the ViT that takes them."""

from __future__ import annotations

from torch import nn

from ..models import PositionEmbedding, ViT
from .sources import ConvertedWeights, Source

OWN = "vitdense"  # this project's own weights: the model's config is all that is known


def compare_conventions(model: ViT, converted: ConvertedWeights, source: Source) -> list[str]:
    """Compares epsilon, heads and the resizing of positions.

    Args:
        model: The ViT that shall take the weights.
        converted: The weights.
        source: Their family.

    Returns:
        A sentence for each difference that changes the result a little, or at other sizes only.

    Raises:
        ValueError: Rotary positions on one side only, or of another base; or another number of heads than the weights
            show.
    """
    if converted.num_heads is not None and converted.num_heads != model.arch.num_heads:
        raise ValueError(f"the weights have {converted.num_heads} heads, the ViT {model.arch.num_heads}")
    if source.name == OWN:
        return []
    wants_rotary = source.options.get("pos_embed") == "rotary"
    if wants_rotary != (model.rotary is not None):
        raise ValueError(
            f"{source.description} {'needs' if wants_rotary else 'has no'} rotary positions: set "
            f"pos_embed='{'rotary' if wants_rotary else 'learned'}' in the ViT"
        )
    if model.rotary is not None and model.rotary.base != source.options["rotary_base"]:
        raise ValueError(
            f"{source.description} has another rotary base than the ViT's {model.rotary.base:g}: "
            f"set rotary_base={source.options['rotary_base']:g}"
        )
    notes = []
    eps = next(module.eps for module in model.blocks.modules() if isinstance(module, nn.LayerNorm))
    if eps != source.norm_eps:
        notes.append(f"norm_eps is {eps:g}, the source's {source.norm_eps:g}")
    heads = source.heads.get(model.arch.embed_dims)
    if heads is not None and heads != model.arch.num_heads:
        notes.append(f"the ViT has {model.arch.num_heads} heads, the published one of this width {heads}")
    if isinstance(model.pos_embed, PositionEmbedding) and converted.position_grid is not None:
        for name in ("interpolate_offset", "interpolate_antialias"):
            found, expected = getattr(model.pos_embed, name), getattr(converted, name)
            if found != expected:
                notes.append(f"{name} is {found}, the source's {expected}: at other sizes its positions differ")
    return notes
