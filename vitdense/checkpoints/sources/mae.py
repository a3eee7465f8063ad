"""MAE (arXiv:2111.06377), its encoder: files of the original repository and of transformers' ViTMAE.

Documented as unused: the decoder, the mask token, and heads of fine-tuned files. The final norm is optional: ViTDet
does not use it. The position table is resized bicubically without offset or filter (MAE's ``interpolate_pos_embed``).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from . import vit
from .base import ConvertedWeights, Source
from .naming import TRANSFORMERS_HEADS

_IGNORED = (r"mask_token", r"decoder[._].*", r"head\..*", r"fc_norm\..*", *TRANSFORMERS_HEADS)


def matches(state: Mapping[str, Tensor]) -> bool:
    """A plain ViT with MAE's decoder beside it; an encoder alone looks like any other plain ViT."""
    return vit.matches(state) and any(key.startswith(("decoder_embed.", "decoder.decoder_embed.")) for key in state)


def convert(state: Mapping[str, Tensor]) -> ConvertedWeights:
    """Takes the encoder."""
    return vit.convert_plain(state, ignored=_IGNORED)


SOURCE = Source("mae", "MAE, with or without its decoder", matches, convert)
