"""The image encoder of SAM (arXiv:2304.02643): ViTDet's, with relative position and a 64 x 64 table without cls.

Documented as unused: the encoder's neck, the prompt encoder and the mask decoder.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, has, rename
from .vitdet import GLOBAL_BLOCKS

_LEAF = r"(weight|bias)"
_LAYER = r"(?:blocks|layers)\.(\d+)\."
_RULES = [
    (r"pos_embed", "pos_embed.weight"),
    (rf"patch_embed\.(?:proj|projection)\.{_LEAF}", r"patch_embed.proj.\1"),
    (rf"{_LAYER}(?:layer_)?norm([12])\.{_LEAF}", r"blocks.\1.norm\2.\3"),
    (rf"{_LAYER}attn\.(qkv|proj)\.{_LEAF}", r"blocks.\1.attn.\2.\3"),
    (rf"{_LAYER}attn\.rel_pos_h", r"blocks.\1.attn.rel_pos.height"),
    (rf"{_LAYER}attn\.rel_pos_w", r"blocks.\1.attn.rel_pos.width"),
    (rf"{_LAYER}mlp\.lin([12])\.{_LEAF}", r"blocks.\1.mlp.fc\2.\3"),
]
_IGNORED = (r"neck\..*", r"(?:prompt_encoder|mask_decoder|shared_image_embedding)\..*", r"pixel_(?:mean|std)")


def matches(state: Mapping[str, Tensor]) -> bool:
    """Relative position and an MLP of ``lin1`` and ``lin2``."""
    return any(key.endswith("0.attn.rel_pos_h") for key in state) and any(
        key.endswith("0.mlp.lin1.weight") for key in state
    )


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames, and flattens the position table."""
    original = has(state, "patch_embed.proj.weight")
    anchor = f"patch_embed.{'proj' if original else 'projection'}.weight"
    tensors, unused = rename(state, anchor, _RULES, _IGNORED)
    table = tensors.get("pos_embed.weight")
    if table is None or table.ndim != 4:
        raise ValueError("these weights lack a position table of shape (1, H, W, C), so they are not SAM's encoder")
    grid = (int(table.shape[1]), int(table.shape[2]))
    tensors["pos_embed.weight"] = table.flatten(1, 2)
    return ConvertedWeights(tensors, grid, unused)


SOURCE = Source(
    "sam",
    "SAM's image encoder",
    matches,
    convert,
    options=dict(use_rel_pos=True),
    window_size=14,
    global_blocks=GLOBAL_BLOCKS,
)
