"""Whether an exported detector finds what MMDetection itself finds, on real images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deploy.detections import Detections, match, read_detections
from deploy.preprocess import Geometry
from deploy.specs import MASK_KINDS, OutputSpec

from ...errors import ParityError

BOX_IOU, SCORE_TOLERANCE, MATCHED_SHARE, MASK_IOU = 0.99, 1e-3, 0.995, 0.99
FEWEST_OBJECTS = 10
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DetectionParity:
    """Objects of the exported file against those of MMDetection, with the same settings.

    Args:
        eager: Objects that MMDetection found.
        exported: Objects that the file found.
        matched: Pairs of the same class with an IoU of at least 0.99 and scores that differ by at most 1e-3.
        lowest_mask_iou: Of the pairs whose masks are large enough to tell (see :func:`deploy.detections.match`); None
            without masks.
    """

    eager: int
    exported: int
    matched: int
    lowest_mask_iou: float | None

    def to_dict(self) -> dict[str, Any]:
        """For the receipt, with the limits that it had to meet."""
        limits = {"box_iou": BOX_IOU, "score": SCORE_TOLERANCE, "matched": MATCHED_SHARE, "mask_iou": MASK_IOU}
        return {**asdict(self), "limits": limits}


def eager_detections(model: Any, tensors: Sequence[Array], geometries: Sequence[Geometry]) -> list[Detections]:
    """What MMDetection predicts for preprocessed images (1, 3, H, W), in pixels of the resized image."""
    from mmdet.structures import DetDataSample

    results = []
    for tensor, geometry in zip(tensors, geometries, strict=True):
        size = geometry.resized_size
        meta = dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0), batch_input_shape=tensor.shape[2:])
        with torch.no_grad():
            (sample,) = model.predict(torch.from_numpy(tensor), [DetDataSample(metainfo=meta)], rescale=False)
        found = sample.pred_instances
        masks = None
        if "masks" in found:
            masks = np.asarray(found.masks.cpu(), dtype=np.bool_)[:, : size[0], : size[1]]
        results.append(
            Detections(
                found.bboxes.numpy().astype(np.float32),
                found.scores.numpy().astype(np.float32),
                found.labels.numpy().astype(np.int64),
                masks,
                exact=True,
            )
        )
    return results


def compare_detections(
    found: Sequence[Mapping[str, Array]],
    expected: Sequence[Detections],
    geometries: Sequence[Geometry],
    specs: Sequence[OutputSpec],
    mask_threshold: float,
    where: str,
) -> DetectionParity:
    """Compares a runtime's outputs with MMDetection's objects.

    Args:
        found: Per image the outputs by name.
        expected: Per image MMDetection's objects.
        geometries: Per image where it lay in the input.
        specs: The outputs, as the manifest will say them.
        mask_threshold: As in MMDetection's ``mask_thr_binary``.
        where: File and runtime, for the message.

    Raises:
        ParityError: Too few objects match, masks differ, a suppression did not come to its end, or boxes found no room.
    """
    counts = np.zeros(3, dtype=np.int64)
    lowest = 1.0
    for number, (outputs, objects, geometry) in enumerate(zip(found, expected, geometries, strict=True)):
        size = geometry.resized_size
        read = read_detections(outputs, specs, Geometry(size, size), 0.0, mask_threshold)
        checks = next(outputs[spec.name][0] for spec in specs if spec.kind == "checks")
        if not read.exact:
            raise ParityError(
                f"output 'checks' of {where} is {checks.tolist()} on image {number}: "
                + ("suppression did not come to its end" if checks[0] != 1 else f"{checks[1]:.0f} boxes found no room")
                + "; no bundle was written. "
                + ("Raise --nms-rounds" if checks[0] != 1 else "Raise --nms-candidates, or test_cfg.score_thr")
            )
        agreement = match(objects, read, BOX_IOU, SCORE_TOLERANCE)
        counts += [agreement.first, agreement.second, agreement.matched]
        lowest = min(lowest, agreement.lowest_mask_iou)
    eager, exported, matched = (int(count) for count in counts)
    if eager < FEWEST_OBJECTS:
        raise ParityError(
            f"MMDetection found {eager} objects on the {len(expected)} parity images, at least {FEWEST_OBJECTS} are "
            "needed to compare anything; no bundle was written. Give --images with objects of these classes, more of "
            "them (--num-images), or trained weights"
        )
    if matched < MATCHED_SHARE * max(eager, exported):
        raise ParityError(
            f"{where} found {exported} objects, MMDetection {eager}, of which {matched} match (IoU {BOX_IOU}, score "
            f"within {SCORE_TOLERANCE}); limit {MATCHED_SHARE:.1%}; no bundle was written"
        )
    has_masks = any(spec.kind in MASK_KINDS for spec in specs)
    if has_masks and lowest < MASK_IOU:
        raise ParityError(
            f"masks of {where} overlap MMDetection's by {lowest:.4f}, limit {MASK_IOU}; no bundle written"
        )
    return DetectionParity(eager, exported, matched, lowest if has_masks else None)
