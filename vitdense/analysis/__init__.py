"""Looking into a ViT: attention, token norms, positions, and where its arithmetic goes."""

from .cost import BlockCost, block_costs
from .parts import PartCost, part_costs
from .tokens import TokenRecord, attention_rollout, find_outliers, most_attended, position_similarity, record_tokens

__all__ = [
    "BlockCost",
    "PartCost",
    "TokenRecord",
    "attention_rollout",
    "block_costs",
    "find_outliers",
    "most_attended",
    "part_costs",
    "position_similarity",
    "record_tokens",
]
