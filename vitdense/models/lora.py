"""Low-rank adaptation (LoRA, arXiv:2106.09685) of the linear layers of a ViT."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LoRALinear(nn.Linear):
    """A linear layer with a trainable product of rank ``rank`` added to its weight.

    ``weight + alpha / rank * lora_b @ lora_a``; lora_b starts at zero, so that nothing changes at first. The weight
    keeps its name, so that pre-trained weights load as they do without.

    Args:
        in_features: Channels that come in.
        out_features: Channels that go out.
        bias: Whether there is a bias.
        rank: Rank of the added product.
        alpha: Its factor, divided by the rank.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, rank: int, alpha: float) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.rank = rank
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(rank, in_features))
        self.lora_b = nn.Parameter(torch.zeros(out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # as the authors' loralib does

    def merged_weight(self) -> Tensor:
        """Weight and product in one, (out, in)."""
        return self.weight + self.scale * self.lora_b @ self.lora_a

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        # Not through the merged weight: in half precision its rounding would swallow the product, and the gradient of
        # the whole weight would be computed.
        return F.linear(x, self.weight, self.bias) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"


def add_lora(block: nn.Module, rank: int, alpha: float, layers: Sequence[str]) -> None:
    """Replaces the linear layers of a block whose names are in ``layers`` by :class:`LoRALinear`.

    Raises:
        ValueError: A rank that is not in 1..the narrowest layer, or no layer of that name.
    """
    found = [
        (parent, name, child)
        for parent in block.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and name in layers
    ]
    absent = sorted(set(layers) - {name for _, name, _ in found})
    if absent or not found:
        raise ValueError(f"lora names the layers {absent or list(layers)}, which a block does not have")
    for parent, name, child in found:
        if not 1 <= rank <= min(child.in_features, child.out_features):
            raise ValueError(f"lora has rank={rank}; expected 1..{min(child.in_features, child.out_features)}")
        setattr(parent, name, LoRALinear(child.in_features, child.out_features, child.bias is not None, rank, alpha))


def merge_lora(model: nn.Module) -> None:
    """Replaces every :class:`LoRALinear` in a model by a plain layer with the merged weight, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRALinear):
                plain = nn.Linear(child.in_features, child.out_features, bias=child.bias is not None)
                plain.weight = nn.Parameter(child.merged_weight().detach(), requires_grad=False)
                plain.bias = child.bias
                setattr(parent, name, plain)
