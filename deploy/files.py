"""Files that are either whole or absent: atomic writing, JSON, arrays, hashes."""

import contextlib
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path in the folder of `path` and rename it to `path` if the block succeeds.

    When the block raises (a keyboard interrupt included) the temporary file is removed and an older file at `path`
    stays as it was.

    Args:
        path: Where the file shall be. Its folder must exist.

    Yields:
        The temporary path to write to.

    Raises:
        FileNotFoundError: The folder of `path` does not exist.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}; create it first")
    # The same folder, because os.replace is atomic only within one file system.
    temporary = target.parent / f".{target.name[:100]}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say which file it was
            raise OSError(error.errno, f"cannot write {target}: {error.strerror}") from error
        raise


def refuse_overwriting(results: Iterable[Path], images: Iterable[Path]) -> None:
    """Raise a `ValueError` if a result would take the place of one of the images it is made from."""
    inputs = {path.resolve() for path in images}
    for result in results:
        if result.resolve() in inputs:
            raise ValueError(f"{result} is one of the images and would be overwritten; choose another --out")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically.

    Args:
        path: The file to write.
        value: Anything JSON can express; NaN and infinity cannot.

    Raises:
        ValueError: `value` holds something JSON cannot express.
        FileNotFoundError: The folder of `path` does not exist.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot write {path}: the content is not plain JSON ({error})") from error
    with atomic_write(path) as temporary:
        # A file name that is no UTF-8 holds lone surrogates; escaped they are valid JSON and read back the same.
        temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write named arrays to an uncompressed `.npz`, atomically.

    Not `np.savez`: it takes the names as keyword arguments, so an array named `file` fails there, and one named
    `allow_pickle` is an option in some versions of numpy and an array in others.

    Args:
        path: The file to write.
        arrays: Name to array; a name may hold slashes.

    Raises:
        FileNotFoundError: The folder of `path` does not exist.
        ValueError: An array holds Python objects.
    """
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.save(stream, array, allow_pickle=False)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file as 64 lower-case hex digits, reading it in blocks of 1 MiB.

    Raises:
        FileNotFoundError: There is no such file.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_folder_of(option: str, path: str | os.PathLike[str] | None) -> None:
    """Raise a `ValueError` if the file that a command is to write at its end has no folder, or is one; None passes."""
    if path is None:
        return
    if Path(path).is_dir():
        raise ValueError(f"{option} {path} is a folder; give the name of a file")
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {Path(path).parent}; create it first")
