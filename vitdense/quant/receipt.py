"""The receipt of a bundle: what was measured, how, where and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_receipt(path: Path) -> dict[str, Any]:
    """Reads a receipt file.

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
    return receipt
