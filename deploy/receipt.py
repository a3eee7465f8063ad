"""The receipt of a bundle, `receipt.json`: what was measured, how, where and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECEIPT_NAME = "receipt.json"


def read_receipt(path: Path) -> dict[str, Any]:
    """Read a receipt.

    Args:
        path: The file.

    Raises:
        ValueError: It is damaged.
        FileNotFoundError: There is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no receipt {path}; export the bundle again")
    try:
        receipt = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); export the bundle again") from None
    if not isinstance(receipt, dict) or not {"parity", "targets"} <= set(receipt):
        raise ValueError(f"{path} is no receipt of a bundle; export the bundle again")
    if not isinstance(receipt.get("devices", {}), dict):
        raise ValueError(f"{path} lists devices that are no object; export the bundle again")
    return receipt
