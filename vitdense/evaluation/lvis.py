"""LVIS's metric with numpy as it is today."""

from __future__ import annotations

from typing import Any

import numpy as np
from mmdet.evaluation.metrics import LVISMetric as MMDetLVISMetric

from ..registry import METRICS


class _NumpyWithFloat:
    """numpy with the alias ``float``, which numpy 1.24 removed and ``lvis`` 0.5.3 still uses."""

    float = np.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@METRICS.register_module()
class LVISMetric(MMDetLVISMetric):
    """MMDetection's ``LVISMetric``; the package ``lvis`` (last release 2020) gets the numpy it was written for.

    Args:
        **kwargs: Of :class:`mmdet.evaluation.LVISMetric`.

    Raises:
        ImportError: ``lvis`` is not installed.
    """

    def __init__(self, **kwargs: Any) -> None:
        try:
            from lvis import eval as lvis_eval
        except ImportError:
            raise ImportError("LVIS's metric needs the package lvis: pip install lvis") from None
        lvis_eval.np = _NumpyWithFloat()
        super().__init__(**kwargs)
