"""New files of a bundle and what belongs to them, moved in together or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.files import write_json
from deploy.manifest import MANIFEST_NAME, Manifest, save_manifest
from deploy.receipt import RECEIPT_NAME
from deploy.reference import REFERENCE_NAME, Reference, save_reference


def publish(
    work: Path, bundle: Path, manifest: Manifest, reference: Reference, receipt: dict[str, Any], files: Sequence[str]
) -> None:
    """Moves the new files in, or puts back what was there if that fails or is interrupted.

    Should the machine stop in between, the hash check refuses a file that is not the manifest's, and a second run mends
    it; receipt figures carry the hash of the file that they belong to.

    Args:
        work: Folder on the same file system that holds the model files.
        bundle: Folder of the bundle.
        manifest: To become its manifest.
        reference: To become its reference.
        receipt: To become its receipt.
        files: Names of the model files.
    """
    save_reference(work, reference)
    write_json(work / RECEIPT_NAME, receipt)
    save_manifest(work, manifest)
    names = (REFERENCE_NAME, RECEIPT_NAME, *files, MANIFEST_NAME)
    backup = work / "backup"
    backup.mkdir()
    for name in names:
        if (bundle / name).exists():
            shutil.copyfile(bundle / name, backup / name)
    try:
        for name in names:
            os.replace(work / name, bundle / name)
    except BaseException:
        for name in names:
            if (backup / name).exists():
                os.replace(backup / name, bundle / name)
            else:
                (bundle / name).unlink(missing_ok=True)
        raise
