"""BEiT (arXiv:2106.08254) and BEiTv2 (arXiv:2208.06366), of the original repository and of transformers.

LayerScale, biases on q and v only (that of the key is zero), and a relative-position bias: a table per block, or one
that pre-training files share between all blocks, which is then added to each. For another grid the tables are
resized at import, see :func:`..resample.resize_bias_table`; a windowed block takes the offsets that occur in a window.

Documented as unused: the mask token, heads, the norm before a head that pools, BEiTv2's extra pre-training layers, and
stored index buffers. The final norm is optional.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, has, rename, table_grid
from .naming import ORIGINAL, TRANSFORMERS, TRANSFORMERS_HEADS, is_original, is_transformers

_TABLE = "relative_position_bias_table"
_SHARED = tuple(
    f"{name}.{_TABLE}" for name in ("rel_pos_bias", "shared_position_bias", "encoder.relative_position_bias")
)
_RULES = [
    (r"(blocks\.\d+)\.gamma_([12])", r"\1.ls\2.gamma"),
    (r"(blocks\.\d+\.attn)\.([qv])_bias", r"\1.\2.bias"),
    (rf"(blocks\.\d+\.attn)\.{_TABLE}", r"\1.rel_pos.table"),
]
_TRANSFORMERS_RULES = [
    (r"(?:encoder\.layer|layers)\.(\d+)\.lambda_([12])", r"blocks.\1.ls\2.gamma"),
    (
        rf"(?:encoder\.layer|layers)\.(\d+)\.(?:attention\.attention\.)?relative_position_bias\.{_TABLE}",
        r"blocks.\1.attn.rel_pos.table",
    ),
]
_IGNORED = (
    r"(?:embeddings\.)?mask_token",
    r"(?:.*\.)?relative_position_index",
    r"(?:lm_head|head|fc_norm|cls_pt_layers|layernorm|norm)\..*",
    *TRANSFORMERS_HEADS,
)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Whether a block has BEiT's bias table, or a bias on q alone."""
    original = is_original(state) and has(state, "blocks.0.attn.q_bias", f"blocks.0.attn.{_TABLE}", *_SHARED)
    transformers = is_transformers(state) and any(key.endswith(("0.lambda_1", _TABLE)) for key in state)
    return original or transformers


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Renames, completes the biases and gives every block its table."""
    original = is_original(state)
    anchor = "patch_embed.proj.weight" if original else "embeddings.patch_embeddings.projection.weight"
    shared = next((state[key] for key in state if key.endswith(_SHARED)), None)
    state = {key: value for key, value in state.items() if not key.endswith(_SHARED)}
    rules = _RULES + ORIGINAL if original else _TRANSFORMERS_RULES + TRANSFORMERS
    tensors, unused = rename(state, anchor, rules, _IGNORED, no_key_bias=True)
    if shared is not None:
        blocks = {match[0] for name in tensors if (match := re.match(r"blocks\.\d+", name))}
        for name in [f"{block}.attn.rel_pos.table" for block in blocks]:
            tensors[name] = tensors[name] + shared if name in tensors else shared  # both are added to the scores
    optional = frozenset({"cls_token", "norm.weight", "norm.bias"})
    return ConvertedWeights(tensors, table_grid(tensors), unused, optional)


SOURCE = Source("beit", "BEiT or BEiTv2", matches, convert)
