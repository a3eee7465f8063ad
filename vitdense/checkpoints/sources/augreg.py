"""The original JAX release of ViT and AugReg (arXiv:2106.10270): .npz files of Flax parameters.

Documented as unused: the head and ``pre_logits``. The final norm is optional. The position table is resized as timm
does (bicubic, filtered); the original's own resizing is linear.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .base import ConvertedWeights, Source, rename, table_grid

_BLOCK = r"Transformer/encoderblock_(\d+)/"
_RULES = [
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed.weight"),
    (r"embedding/kernel", "patch_embed.proj.weight"),
    (r"embedding/bias", "patch_embed.proj.bias"),
    (rf"{_BLOCK}LayerNorm_0/scale", r"blocks.\1.norm1.weight"),
    (rf"{_BLOCK}LayerNorm_0/bias", r"blocks.\1.norm1.bias"),
    (rf"{_BLOCK}LayerNorm_2/scale", r"blocks.\1.norm2.weight"),
    (rf"{_BLOCK}LayerNorm_2/bias", r"blocks.\1.norm2.bias"),
    *(
        (rf"{_BLOCK}MultiHeadDotProductAttention_1/{part}/{kind}", rf"blocks.\1.attn.{part[0]}.{ours}")
        for part in ("query", "key", "value")
        for kind, ours in (("kernel", "weight"), ("bias", "bias"))
    ),
    (rf"{_BLOCK}MultiHeadDotProductAttention_1/out/kernel", r"blocks.\1.attn.proj.weight"),
    (rf"{_BLOCK}MultiHeadDotProductAttention_1/out/bias", r"blocks.\1.attn.proj.bias"),
    *(
        (rf"{_BLOCK}MlpBlock_3/Dense_{index}/{kind}", rf"blocks.\1.mlp.fc{index + 1}.{ours}")
        for index in (0, 1)
        for kind, ours in (("kernel", "weight"), ("bias", "bias"))
    ),
    (r"Transformer/encoder_norm/scale", "norm.weight"),
    (r"Transformer/encoder_norm/bias", "norm.bias"),
]
_IGNORED = (r"(?:head|pre_logits)/.*",)


def matches(state: Mapping[str, Tensor]) -> bool:
    """Flax's names with slashes."""
    return "embedding/kernel" in state and any(key.startswith("Transformer/encoderblock_0/") for key in state)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Turns Flax's kernels (in, out) into torch's weights (out, in), heads flattened, and renames."""
    turned = {key: _as_torch(key, value) for key, value in state.items()}
    tensors, unused = rename(turned, "embedding/kernel", _RULES, _IGNORED)
    optional = frozenset({"cls_token", "norm.weight", "norm.bias"})
    query = state.get("Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel")
    heads = None if query is None else query.shape[1]
    return ConvertedWeights(tensors, table_grid(tensors), unused, optional, interpolate_antialias=True, num_heads=heads)


def _as_torch(key: str, value: Tensor) -> Tensor:
    if key == "embedding/kernel":  # H W in out
        return value.permute(3, 2, 0, 1).contiguous()
    if key.endswith("out/kernel"):  # heads head_dim out
        return value.flatten(0, 1).T.contiguous()
    if key.endswith(("query/kernel", "key/kernel", "value/kernel")):  # in heads head_dim
        return value.flatten(1).T.contiguous()
    if key.endswith(("query/bias", "key/bias", "value/bias")):
        return value.flatten()
    return value.T.contiguous() if key.endswith("/kernel") and value.ndim == 2 else value


SOURCE = Source("augreg", "the original JAX release of ViT (.npz)", matches, convert)
