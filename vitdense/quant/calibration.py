"""The images that activation ranges are taken from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.files import sha256_of
from deploy.io import list_images


@dataclass(frozen=True)
class CalibrationSet:
    """Real images for calibration, told apart by their content.

    Args:
        paths: The images.
        sha256: Hash of each file.
    """

    paths: tuple[Path, ...]
    sha256: tuple[str, ...]


def collect_calibration(folders: Sequence[str], limit: int, minimum: int, spare: int = 0) -> CalibrationSet:
    """Lists the calibration images, evenly spaced when there are more than needed; copies of one image count once.

    Args:
        folders: Folders or files.
        limit: Most images to calibrate on.
        minimum: Fewest that are accepted.
        spare: More images to take where there are more. Defaults to 0.

    Raises:
        ValueError: Fewer than ``minimum`` different images.
    """
    if limit < minimum:
        raise ValueError(f"{limit} calibration images are fewer than the {minimum} that this recipe needs")
    unique: dict[str, Path] = {}
    for path in list_images(folders):
        unique.setdefault(sha256_of(path), path)
    if len(unique) < minimum:
        raise ValueError(
            f"{len(unique)} different images in {', '.join(folders)}, at least {minimum} are needed to calibrate; "
            "give images like those the model will see (a few hundred are better)"
        )
    items = list(unique.items())
    count = min(limit + spare, len(items))
    chosen = [items[int(index * len(items) / count)] for index in range(count)]
    return CalibrationSet(tuple(path for _, path in chosen), tuple(digest for digest, _ in chosen))


def refuse_overlap(calibration: CalibrationSet, scored: Sequence[Path]) -> None:
    """Raises ValueError if an image is both calibrated on and scored on: the score would flatter."""
    hashes = {sha256_of(path): path for path in scored}
    shared = [
        (path, hashes[digest])
        for path, digest in zip(calibration.paths, calibration.sha256, strict=True)
        if digest in hashes
    ]
    if shared:
        path, twin = shared[0]
        raise ValueError(
            f"{len(shared)} of {len(calibration.paths)} calibration images are also scored on (by sha256), e.g. {path} "
            f"is {twin}; calibrate on other images, the training split for instance"
        )
