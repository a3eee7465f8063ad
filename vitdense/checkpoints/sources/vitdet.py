"""Backbones of ViTDet (arXiv:2203.16527): detectron2's files, MMDetection's port and transformers' VitDet.

The position table is stored with a cls entry that the model never uses; it is dropped.
Documented as unused here: the pyramid and the heads (whole detectors: tools/convert_checkpoint.py), pixel statistics.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, has, rename, table_grid

_LEAF = r"(weight|bias)"
_LAYER = r"(?:blocks|encoder\.layer)\.(\d+)\."
RULES = [
    (r"(?:embeddings\.position_embeddings|pos_embed)", "pos_embed.weight"),
    (rf"(?:embeddings\.projection|patch_embed\.proj)\.{_LEAF}", r"patch_embed.proj.\1"),
    (rf"{_LAYER}norm([12])\.{_LEAF}", r"blocks.\1.norm\2.\3"),
    (rf"{_LAYER}(?:attn|attention)\.(qkv|proj)\.{_LEAF}", r"blocks.\1.attn.\2.\3"),
    (rf"{_LAYER}(?:attn|attention)\.rel_pos_h", r"blocks.\1.attn.rel_pos.height"),
    (rf"{_LAYER}(?:attn|attention)\.rel_pos_w", r"blocks.\1.attn.rel_pos.width"),
    (rf"{_LAYER}mlp\.(fc[12])\.{_LEAF}", r"blocks.\1.mlp.\2.\3"),
    (rf"{_LAYER}residual\.(conv[123])\.weight", r"blocks.\1.residual.\2.weight"),
    (rf"{_LAYER}residual\.(norm[123])\.{_LEAF}", r"blocks.\1.residual.\2.\3"),
]
_IGNORED = (
    r"(?:backbone\.)?(?:simfp_\d+|fpn)\..*",
    r"(?:proposal_generator|roi_heads|neck|rpn_head|roi_head|bbox_head|data_preprocessor)\..*",
    r"pixel_(?:mean|std)",
)
GLOBAL_BLOCKS = {12: (2, 5, 8, 11), 24: (5, 11, 17, 23), 32: (7, 15, 23, 31)}


def matches(state: Mapping[str, Tensor]) -> bool:
    """detectron2's ``net.``, a joint qkv under transformers' layers, or relative position with fc1 and fc2."""
    if has(state, "net.blocks.0.attn.qkv.weight", "encoder.layer.0.attention.qkv.weight"):
        return True
    return has(state, "blocks.0.attn.rel_pos_h") and has(state, "blocks.0.mlp.fc1.weight")


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames the backbone and drops the cls entry of the table."""
    original = has(state, "patch_embed.proj.weight")
    anchor = "patch_embed.proj.weight" if original else "embeddings.projection.weight"
    tensors, unused = rename(state, anchor, RULES, _IGNORED)
    table = tensors.get("pos_embed.weight")
    if table is not None and round((table.shape[1] - 1) ** 0.5) ** 2 == table.shape[1] - 1:
        tensors["pos_embed.weight"] = table[:, 1:]
    return ConvertedWeights(tensors, table_grid(tensors, 0), unused)


SOURCE = Source(
    "vitdet",
    "ViTDet's backbone, of detectron2, MMDetection or transformers",
    matches,
    convert,
    window_size=14,
    global_blocks=GLOBAL_BLOCKS,
)
