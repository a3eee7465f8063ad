"""Whether a detector's heads expect the strides that its ViT and pyramid give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import Config

_KEYS = ("strides", "featmap_strides")


def check_strides(cfg: Config) -> None:
    """Compares every ``strides`` and ``featmap_strides`` of the heads with the maps of ViT and simple feature pyramid.

    A head with other strides trains without complaint and puts its boxes elsewhere: patch-14 weights under a config for
    patch 16 do so.

    Raises:
        ValueError: They differ; both are named.
    """
    model = cfg.get("model") or {}
    backbone, neck = model.get("backbone") or {}, model.get("neck") or {}
    if backbone.get("type") != "vitdense.ViT" or neck.get("type") != "vitdense.SimpleFeaturePyramid":
        return
    given = [backbone.get("patch_size", 16) / scale for scale in neck.get("scales", (4, 2, 1, 0.5))]
    given += [given[-1] * 2**i for i in range(1, neck.get("num_outs", 5) - len(given) + 1)]
    for path, expected in _strides({key: value for key, value in model.items() if key.endswith("head")}, "model"):
        if expected != given[: len(expected)]:  # every head takes the maps from the first on
            raise ValueError(
                f"{path}={_short(expected)}, but a patch of {backbone.get('patch_size', 16)} pixels and this pyramid "
                f"give maps of stride {_short(given)}: make patch_size, the neck's scales and the head's strides agree"
            )


def _strides(config: Mapping[str, Any], path: str) -> Iterator[tuple[str, list[float]]]:
    for key, value in config.items():
        if key in _KEYS and isinstance(value, list | tuple) and value:
            yield f"{path}.{key}", [float(item[0] if isinstance(item, list | tuple) else item) for item in value]
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                yield from _strides(item, f"{path}.{key}")


def _short(strides: list[float]) -> str:
    return "[" + ", ".join(f"{stride:g}" for stride in strides) + "]"
