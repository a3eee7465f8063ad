"""Whole detectors of detectron2's ViTDet (02b5c4e, projects/ViTDet) for this project's Mask and Cascade Mask R-CNN.

Backbone, pyramid, RPN, box and mask heads are renamed; nothing is computed, because the layers agree in shape, order of
classes (background last) and order of box deltas. What the config must have in common with the published model:
anchors of ratio 0.5, 1 and 2, LayerNorm with eps 1e-6, box deviations of 0.1 and 0.2 (Cascade: halved and a third).

One thing differs by design: the configs here sample RoIs with 2 x 2 points, detectron2 adapts their number to the box.
What that costs in AP was not measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .sources.vitdet import RULES

_LEAF = r"(weight|bias)"
# Layers of each level that hold weights, in detectron2's numbering (norms inside their convolutions) and in ours.
_LEVELS: dict[int, tuple[int, dict[int, int]]] = {
    2: (0, {0: 0, 1: 1, 3: 3, 4: 4, 5: 6}),
    3: (1, {0: 0, 1: 1, 2: 3}),
    4: (2, {0: 0, 1: 2}),
    5: (3, {1: 1, 2: 3}),
}
_PYRAMID = [
    rule
    for stage, (level, layers) in _LEVELS.items()
    for theirs, ours in layers.items()
    for rule in (
        (rf"backbone\.simfp_{stage}\.{theirs}\.{_LEAF}", rf"neck.levels.{level}.{ours}.\1"),
        (rf"backbone\.simfp_{stage}\.{theirs}\.norm\.{_LEAF}", rf"neck.levels.{level}.{ours + 1}.\1"),
    )
]
_BOX = r"roi_heads\.box_head\.(?:(\d)\.)?"
_MASK = r"roi_heads\.mask_head\."
_PREDICTOR = r"roi_heads\.box_predictor\.(?:(\d)\.)?"
_HEADS = [
    (rf"proposal_generator\.rpn_head\.conv\.conv(\d)\.{_LEAF}", r"rpn_head.rpn_conv.\1.conv.\2"),
    (rf"proposal_generator\.rpn_head\.objectness_logits\.{_LEAF}", r"rpn_head.rpn_cls.\1"),
    (rf"proposal_generator\.rpn_head\.anchor_deltas\.{_LEAF}", r"rpn_head.rpn_reg.\1"),
    (rf"{_BOX}fc1\.{_LEAF}", r"roi_head.bbox_head.\1.shared_fcs.0.\2"),
    (rf"{_PREDICTOR}cls_score\.{_LEAF}", r"roi_head.bbox_head.\1.fc_cls.\2"),
    (rf"{_PREDICTOR}bbox_pred\.{_LEAF}", r"roi_head.bbox_head.\1.fc_reg.\2"),
    (rf"{_MASK}deconv\.{_LEAF}", r"roi_head.mask_head.upsample.\1"),
    (rf"{_MASK}predictor\.{_LEAF}", r"roi_head.mask_head.conv_logits.\1"),
]
for _i in range(4):  # detectron2 counts convolutions from 1, MMDetection from 0
    _HEADS += [
        (rf"{_BOX}conv{_i + 1}\.(weight)", rf"roi_head.bbox_head.\1.shared_convs.{_i}.conv.\2"),
        (rf"{_BOX}conv{_i + 1}\.norm\.{_LEAF}", rf"roi_head.bbox_head.\1.shared_convs.{_i}.ln.\2"),
        (rf"{_MASK}mask_fcn{_i + 1}\.(weight)", rf"roi_head.mask_head.convs.{_i}.conv.\1"),
        (rf"{_MASK}mask_fcn{_i + 1}\.norm\.{_LEAF}", rf"roi_head.mask_head.convs.{_i}.ln.\1"),
    ]
_BACKBONE = "backbone.net."
# Constants that detectron2 stores: pixel statistics and the cells of its anchors.
_IGNORED = (r"pixel_(?:mean|std)", r"proposal_generator\.anchor_generator\.cell_anchors\.\d+")


def is_detectron2_detector(state: Mapping[str, Tensor]) -> bool:
    """Whether these are the weights of a whole ViTDet detector of detectron2."""
    return f"{_BACKBONE}patch_embed.proj.weight" in state and any(key.startswith("roi_heads.") for key in state)


def convert_detectron2_detector(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Renames the weights of a ViTDet detector.

    Args:
        state: Of detectron2.

    Returns:
        Weights under the names of a Mask R-CNN or Cascade Mask R-CNN of MMDetection with :class:`vitdense.models.ViT`
        and :class:`vitdense.models.SimpleFeaturePyramid`; and the names that are documented as unused (the constants
        above, and the cls entry of the position table).

    Raises:
        ValueError: Names that are not known; each is listed.
    """
    tensors: dict[str, Tensor] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    for key, value in state.items():
        if key.startswith(_BACKBONE):
            name = _renamed(key.removeprefix(_BACKBONE), RULES)
            name = None if name is None else f"backbone.{name}"
        else:
            name = _renamed(key, _PYRAMID + _HEADS)
        if name is not None:
            tensors[name.replace("..", ".")] = value  # one box head has no number
        elif any(re.fullmatch(pattern, key) for pattern in _IGNORED):
            ignored.append(key)
        else:
            unknown.append(key)
    if unknown:
        raise ValueError(
            f"this detector has {len(unknown)} weights that no part of a Mask or Cascade Mask R-CNN takes: "
            f"{', '.join(sorted(unknown)[:12])}"
        )
    table = tensors.get("backbone.pos_embed.weight")
    if table is not None:
        tensors["backbone.pos_embed.weight"] = table[:, 1:]
        ignored.append(f"{_BACKBONE}pos_embed (its first entry)")
    return tensors, ignored


def _renamed(key: str, rules: list[tuple[str, str]]) -> str | None:
    for pattern, replacement in rules:
        if match := re.fullmatch(pattern, key):
            return match.expand(replacement)
    return None
