"""The receipt of a bundle: what was measured, how, where and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..export.bundle import RECEIPT_FILE


def read_receipt(bundle: Path) -> dict[str, Any]:
    """Reads a bundle's receipt.

    Raises:
        ValueError: It is damaged.
        FileNotFoundError: There is none.
    """
    path = bundle / RECEIPT_FILE
    if not path.is_file():
        raise FileNotFoundError(f"the bundle has no {RECEIPT_FILE}; export it again")
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); export the bundle again") from None
    if not isinstance(receipt, dict):
        raise ValueError(f"{path} holds a {type(receipt).__name__}, expected an object; export the bundle again")
    return receipt
