"""From a detector's outputs, a fixed number of boxes in the input, to the objects in the image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deploy.preprocess import Geometry
from deploy.specs import OutputSpec

Array = npt.NDArray[Any]
MASK_THRESHOLD = 0.5
_TELLING_PIXELS = 400


class Masks(Sequence[npt.NDArray[np.bool_]]):
    """Masks that are made when they are looked at: 100 of a photo of 12 megapixels would take 1.2 GB.

    Args:
        number: How many there are.
        make: Index to the mask, (H0, W0) bool.
    """

    def __init__(self, number: int, make: Callable[[int], npt.NDArray[np.bool_]]) -> None:
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: Any) -> Any:
        """Return the mask of an object, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self._make(place) for place in range(*index.indices(self._number))]
        return self._make(range(self._number)[index])


@dataclass(frozen=True, eq=False)
class Detections:
    """The objects of one image, by falling score.

    Attributes:
        boxes: (K, 4) float32: left, top, right, bottom in pixels of the image, borders between pixels counted from 0.
        scores: (K,) float32, 0 to 1.
        labels: (K,) class indices.
        masks: (H0, W0) bool for each object; None for a detector without masks.
        exact: Whether the graph's suppression of overlapping boxes came to its end and every box found a place.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    masks: Sequence[npt.NDArray[np.bool_]] | npt.NDArray[np.bool_] | None
    exact: bool

    def __len__(self) -> int:
        return len(self.scores)


def read_detections(
    outputs: Mapping[str, Array],
    specs: Sequence[OutputSpec],
    geometry: Geometry,
    score_threshold: float,
    mask_threshold: float = MASK_THRESHOLD,
) -> Detections:
    """Read the first image of a detector's outputs, as MMDetection does at test time.

    Args:
        outputs: Output name to array, N first.
        specs: The manifest's outputs.
        geometry: Where the image lay in the input, from `Preprocessor`.
        score_threshold: Objects with a lower score are left out.
        mask_threshold: Probability from which a pixel belongs to the object.

    Returns:
        Objects in pixels of the original image.

    Raises:
        ValueError: An output holds NaN or infinity, a negative class, or more boxes than there is room for.
    """
    named = {spec.kind: outputs[spec.name][0] for spec in specs if spec.kind != "feature"}
    number = int(named["number"])
    if not 0 <= number <= len(named["scores"]):
        raise ValueError(f"the model says it found {number} objects, but has room for {len(named['scores'])}")
    for kind, array in named.items():
        if not np.isfinite(array).all():
            raise ValueError(f"the model's {kind} hold NaN or infinity; its detections would be meaningless")
    if (named["labels"][:number] < 0).any():
        raise ValueError("the model's labels hold a negative class; its detections would be meaningless")
    kept = np.flatnonzero(named["scores"][:number] >= score_threshold)
    height, width = geometry.original_size
    down, across = geometry.scale
    boxes = named["boxes"][kept].astype(np.float32) / np.array([across, down, across, down], dtype=np.float32)
    boxes = np.clip(boxes, 0, np.array([width, height, width, height], dtype=np.float32))
    masks = None
    if "box_masks" in named:
        cells = named["box_masks"][kept]
        masks = Masks(len(kept), lambda place: pasted_mask(cells[place], boxes[place], (height, width), mask_threshold))
    elif "mask_logits" in named:
        planes = named["mask_logits"][kept]
        limit = float(np.log(mask_threshold / (1 - mask_threshold)))
        stride = next(spec.stride for spec in specs if spec.kind == "mask_logits")
        masks = Masks(len(kept), lambda place: _enlarged(planes[place], geometry, stride) > limit)
    converged, overflow = (float(value) for value in named["checks"])
    labels = named["labels"][kept].astype(np.int64)
    scores = named["scores"][kept].astype(np.float32)
    return Detections(boxes, scores, labels, masks, converged == 1 and overflow == 0)


def pasted_mask(
    probabilities: Array, box: npt.NDArray[np.float32], size: tuple[int, int], threshold: float
) -> npt.NDArray[np.bool_]:
    """Enlarge the mask of a box, (m, m) probabilities, to its pixels in an image of `size`, (H0, W0).

    Bilinear with half-pixel centres and zeros around, as Mask R-CNN's evaluation does it (MMDetection,
    `_do_paste_mask`): the border of a mask fades over half a cell, so nothing outside of the box is set.
    """
    target = np.zeros(size, dtype=np.bool_)
    left, top, right, bottom = (float(value) for value in box)
    if right <= left or bottom <= top:
        return target
    rows, weights_y = _weights(top, bottom, probabilities.shape[0], target.shape[0])
    columns, weights_x = _weights(left, right, probabilities.shape[1], target.shape[1])
    values = weights_y @ probabilities.astype(np.float32) @ weights_x.T
    target[rows, columns] = values >= threshold
    return target


def _weights(low: float, high: float, cells: int, size: int) -> tuple[slice, npt.NDArray[np.float32]]:
    """The pixels that a side of a box touches, and the bilinear weight (pixels, cells) of each cell for each pixel."""
    cell = (high - low) / cells
    first = max(0, int(np.floor(low - cell)))
    last = min(size, int(np.ceil(high + cell)))
    position = (np.arange(first, last, dtype=np.float32) + 0.5 - low) / cell - 0.5
    distance = np.abs(position[:, None] - np.arange(cells, dtype=np.float32)[None])
    return slice(first, last), np.maximum(0, 1 - distance).astype(np.float32)


def _enlarged(plane: Array, geometry: Geometry, stride: float) -> Array:
    """Logits of cells to logits over the image: a cell to its pixels of the input, cut to the image, to its size.

    The cells may reach beyond an input that is not made of whole patches.
    """
    covered = (round(plane.shape[1] * stride), round(plane.shape[0] * stride))
    whole = cv2.resize(plane.astype(np.float32), covered, interpolation=cv2.INTER_LINEAR)
    valid = np.ascontiguousarray(np.asarray(whole)[geometry.valid_region])
    height, width = geometry.original_size
    return np.asarray(cv2.resize(valid, (width, height), interpolation=cv2.INTER_LINEAR))


@dataclass(frozen=True)
class Agreement:
    """How many objects two detectors have in common.

    Attributes:
        first: Objects of the first.
        second: Objects of the second.
        matched: Pairs.
        lowest_mask_iou: Of the pairs whose masks have 400 pixels or more together: of fewer, one pixel is 0.25 % and
            more. 1 without such pairs.
    """

    first: int
    second: int
    matched: int
    lowest_mask_iou: float

    @property
    def share(self) -> float:
        """Matched objects over all, the smaller one of both sides; 1 where there are none."""
        larger = max(self.first, self.second)
        return self.matched / larger if larger else 1.0


def match(first: Detections, second: Detections, iou: float, score_tolerance: float) -> Agreement:
    """Pair objects of the same class whose boxes overlap by at least `iou` and whose scores are close, each once.

    Args:
        first: Objects, paired from the surest on.
        second: Objects of the same image.
        iou: Intersection over union that a pair needs.
        score_tolerance: Largest difference of its scores.
    """
    overlap = box_iou(first.boxes, second.boxes)
    close = np.abs(first.scores[:, None] - second.scores[None]) <= score_tolerance
    possible = np.where(close & (first.labels[:, None] == second.labels[None]) & (overlap >= iou), overlap, -1.0)
    matched, lowest = 0, 1.0
    for row in range(len(first)):
        column = int(possible[row].argmax()) if len(second) else 0
        if not len(second) or possible[row, column] < 0:
            continue
        possible[:, column] = -1
        matched += 1
        if first.masks is not None and second.masks is not None:
            lowest = min(lowest, mask_iou(first.masks[row], second.masks[column]))
    return Agreement(len(first), len(second), matched, lowest)


def box_iou(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Intersection over union of boxes (N, 4) and (M, 4), as (N, M); of boxes without area 1 if they are equal."""
    a, b = first.astype(np.float64)[:, None], second.astype(np.float64)[None]
    sides = np.maximum(0, np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]))
    both = sides.prod(-1)
    either = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - both
    equal = (a == b).all(-1)
    return np.where(either > 0, both / np.maximum(either, 1e-12), equal.astype(np.float64))


def mask_iou(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> float:
    """Intersection over union of two masks (H, W); 1 where both together are too small to tell."""
    either = int((first | second).sum())
    return 1.0 if either < _TELLING_PIXELS else int((first & second).sum()) / either


def common_counts(first: Detections, second: Detections) -> npt.NDArray[np.int64]:
    """Count the objects of one image that two detectors have in common where neither is in doubt.

    An object with a score of 0.35 or more on one side needs one of the same class, with an IoU of 0.7 or more and a
    score of 0.25 or more, on the other.

    Returns:
        (2, 2): for each side, the objects with a score of 0.35 or more, and those of them that the other has. Counts of
        images add up.
    """
    counts = np.zeros((2, 2), dtype=np.int64)
    for side, (one, other) in enumerate(((first, second), (second, first))):
        sure, likely = one.scores >= 0.35, other.scores >= 0.25
        same = one.labels[sure][:, None] == other.labels[likely][None]
        close = box_iou(one.boxes[sure], other.boxes[likely]) >= 0.7
        counts[side] = sure.sum(), (same & close).any(axis=1).sum()
    return counts


def agreement_share(counts: npt.NDArray[np.int64]) -> float:
    """Return the share of objects in common, the smaller one of both sides, 0 to 1; 1 where there are none."""
    return float(min(common / number if number else 1.0 for number, common in counts))
