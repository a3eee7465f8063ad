"""DINOv2 (arXiv:2304.07193), with or without registers (arXiv:2309.16588), original and transformers' names.

The final norm belongs to the features and is not optional. The position table of the original is resized bicubically
with 0.1 added to the target size; with registers without an offset, but filtered (``hubconf.py`` of the original). In
transformers' port the plain model has no offset, so a file under its names is resized without one. A giant has a gated
MLP. Documented as unused: the mask token, and heads.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, add_cls_position, has, rename, require_features, table_grid
from .naming import ORIGINAL, TRANSFORMERS, TRANSFORMERS_HEADS, is_original, is_transformers, join_mlp

OFFSET = 0.1
_RULES = [
    (r"blocks\.(?:\d+\.)?(\d+)\.ls([12])\.gamma", r"blocks.\1.ls\2.gamma"),
    (r"reg_token", "register_tokens"),  # timm
    # Files of trainings number the chunks of blocks first: blocks.0.3.norm1.
    (r"blocks\.\d+\.(\d+)\.((?:norm[12]|attn|mlp)\..*)", r"blocks.\1.\2"),
    (r"(blocks\.\d+\.mlp\.(?:w12|w3))\.(weight|bias)", r"\1.\2"),
]
_IGNORED = (r"(?:embeddings\.)?mask_token", r"(?:dino|ibot)_head\..*", *TRANSFORMERS_HEADS)


def matches(state: Mapping[str, Tensor]) -> bool:
    """LayerScale as DINOv2 names it, and a position table (DINOv3 has none)."""
    original = has(state, "blocks.0.ls1.gamma", "blocks.0.0.ls1.gamma") and has(state, "pos_embed")
    transformers = is_transformers(state) and has(state, "embeddings.position_embeddings")
    return original or (transformers and any(key.endswith("0.layer_scale1.lambda1") for key in state))


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames; joins the gate of a giant's MLP."""
    original = is_original(state) or has(state, "blocks.0.0.attn.qkv.weight")
    anchor = "patch_embed.proj.weight" if original else "embeddings.patch_embeddings.projection.weight"
    tensors, unused = rename(state, anchor, _RULES + ORIGINAL if original else TRANSFORMERS, _IGNORED)
    tensors = add_cls_position(join_mlp(tensors))
    require_features(tensors, "DINOv2")
    registers = "register_tokens" in tensors
    return ConvertedWeights(
        tensors,
        table_grid(tensors),
        unused,
        frozenset({"cls_token"}),
        interpolate_offset=OFFSET if original and not registers else 0.0,
        interpolate_antialias=registers,
    )


SOURCE = Source("dinov2", "DINOv2, with or without registers", matches, convert)
