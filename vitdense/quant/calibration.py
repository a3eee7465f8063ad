"""The images that activation ranges are taken from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
        left_out: How many images that were given are not among them because they are scored on.
    """

    paths: tuple[Path, ...]
    sha256: tuple[str, ...]
    left_out: int = 0


def collect_calibration(
    folders: Sequence[str], limit: int, minimum: int, spare: int = 0, scored: Collection[str] = ()
) -> CalibrationSet:
    """Lists the calibration images, evenly spaced when there are more than needed; copies of one image count once.

    Args:
        folders: Folders or files.
        limit: Most images to calibrate on.
        minimum: Fewest that are accepted.
        spare: More images to take where there are more. Defaults to 0.
        scored: Hashes of images that are left out: calibrated on, their score would flatter. Defaults to none.

    Raises:
        ValueError: Fewer than ``minimum`` different images.
    """
    if limit < minimum:
        raise ValueError(f"{limit} calibration images are fewer than the {minimum} that this recipe needs")
    unique: dict[str, Path] = {}
    for path in list_images(folders):
        unique.setdefault(sha256_of(path), path)
    items = [(digest, path) for digest, path in unique.items() if digest not in scored]
    left_out = len(unique) - len(items)
    if len(items) < minimum:
        without = f" without the {left_out} that are scored on" if left_out else ""
        raise ValueError(
            f"{len(items)} different images in {', '.join(folders)}{without}, at least {minimum} are needed to "
            "calibrate; give images like those the model will see (a few hundred are better), the training split for "
            "instance"
        )
    count = min(limit + spare, len(items))
    chosen = [items[int(index * len(items) / count)] for index in range(count)]
    return CalibrationSet(tuple(path for _, path in chosen), tuple(digest for digest, _ in chosen), left_out)
