"""What a bundle scored on a labelled data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LABELS = {
    "miou": "mIoU",
    "pixel_accuracy": "pixel accuracy",
    "box_ap": "box AP",
    "box_ap50": "box AP50",
    "box_ap75": "box AP75",
    "mask_ap": "mask AP",
    "mask_ap50": "mask AP50",
    "mask_ap75": "mask AP75",
}
AGREEMENTS = {"pixels_equal": "equal pixels", "objects_agree": "objects in common"}
MAIN_MEASURES = ("miou", "box_ap", "mask_ap")


@dataclass(frozen=True)
class Score:
    """Accuracy over a whole data set, in points of 100.

    Args:
        values: By the names of :data:`LABELS`: of a segmenter 'miou' and 'pixel_accuracy', of a detector 'box_ap' and
            its like, and 'mask_ap' where it has masks.
        by_class: 'iou' or 'ap' (of boxes) of each class; NaN where the class does not occur.
        class_measure: 'iou' or 'ap'.
        images: Number of images.
    """

    values: dict[str, float]
    by_class: dict[str, float]
    class_measure: str
    images: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a class that does not occur has null."""
        by_class = {name: None if value != value else round(value, 2) for name, value in self.by_class.items()}
        return {**self.values, self.class_measure: by_class, "images": self.images}


def largest_drop(before: Score, after: Score) -> tuple[str, float]:
    """The main measure that fell most, and by how many points; negative where even that one rose."""
    drops = {name: before.values[name] - after.values[name] for name in MAIN_MEASURES if name in before.values}
    worst = max(drops, key=lambda name: drops[name])
    return worst, drops[worst]


def check_same_classes(bundle: Sequence[str], data: Sequence[str]) -> None:
    """Raises ValueError unless bundle and data have the same classes in the same order."""
    if list(bundle) != list(data):
        raise ValueError(
            f"the bundle has {len(bundle)} classes {list(bundle)}, "
            f"the test data of the config {len(data)}: {list(data)}"
        )
