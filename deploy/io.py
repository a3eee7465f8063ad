"""Reading and writing images, any path name included."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deploy.files import atomic_write

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def read_image(path: str | os.PathLike[str]) -> npt.NDArray[np.uint8]:
    """Read an image as the training side does: turned as its EXIF data says, three channels, no alpha.

    Args:
        path: An image file. The name may hold any character (`cv2.imread` fails on some of them on Windows).

    Returns:
        (H, W, 3), BGR.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder, empty, damaged or no image.
    """
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{file} is a folder; expected an image file")
    if not file.exists():
        raise FileNotFoundError(f"there is no image {file}")
    data = np.fromfile(file, dtype=np.uint8)
    if data.size == 0:
        raise ValueError(f"{file} is empty (0 bytes); expected an image")
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    except cv2.error as error:  # some damaged headers raise instead of giving None
        raise ValueError(f"{file} cannot be decoded as an image ({error.err}); is it damaged?") from error
    if image is None:
        raise ValueError(
            f"{file} cannot be decoded as an image; is it damaged, or in a format that OpenCV cannot read? "
            f"Known suffixes: {' '.join(IMAGE_SUFFIXES)}"
        )
    return np.asarray(image, dtype=np.uint8)


def list_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """List image files given one by one or by their folder.

    Args:
        paths: Files (taken whatever their suffix) and folders (their files with a suffix of `IMAGE_SUFFIXES`, upper or
            lower case, sorted by name, not those of folders below).

    Returns:
        The files in the order given; one given twice is listed once.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A folder holds no image.
    """
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
            if not found:
                raise ValueError(f"the folder {path} holds no image ({' '.join(IMAGE_SUFFIXES)})")
        elif path.exists():
            found = [path]
        else:
            raise FileNotFoundError(f"there is no file or folder {path}")
        for file in found:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def write_image(path: str | os.PathLike[str], image: npt.NDArray[Any]) -> None:
    """Write an image in the format its suffix names, atomically.

    Args:
        path: The file to write. The name may hold any character.
        image: (H, W) or (H, W, 3) BGR, uint8 or, for formats that can hold it, uint16.

    Raises:
        FileNotFoundError: The folder does not exist.
        ValueError: OpenCV cannot write such an image in that format.
    """
    file = Path(path)
    try:
        done, data = cv2.imencode(file.suffix, image)
    except cv2.error as error:
        raise ValueError(
            f"cannot write {file}: OpenCV has no way to store {image.dtype} {image.shape} as {file.suffix!r} "
            f"({error.err})"
        ) from error
    if not done:
        raise ValueError(f"cannot write {file}: encoding {image.dtype} {image.shape} as {file.suffix!r} failed")
    with atomic_write(file) as temporary:
        temporary.write_bytes(data.tobytes())
