"""Building the model and the test data of a config outside a Runner."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import nn

from ..datasets import check_dataset_files, leaf_datasets
from ..errors import CONFIG_MISTAKES
from .strides import check_strides


def build_model(cfg: Config) -> nn.Module:
    """Builds ``cfg.model`` in evaluation mode, with weights at their initial values.

    Raises:
        ValueError: The config has no model, or names one that is not registered, or heads with other strides than the
            maps.
    """
    if "model" not in cfg:
        raise ValueError("the config has no 'model'")
    check_strides(cfg)
    init_default_scope(cfg.get("default_scope", "mmengine"))
    try:
        model: nn.Module = MODELS.build(cfg.model)
    except CONFIG_MISTAKES as error:
        raise ValueError(f"the model of the config cannot be built: {error}") from error
    return model.eval()


def build_shapes(cfg: Config) -> nn.Module:
    """:func:`build_model` without values where possible (on the meta device), for counting and checking of shapes."""
    try:
        with torch.device("meta"):
            return build_model(cfg)
    except ValueError:  # a part that computes with values while it is built
        return build_model(cfg)


def build_test_dataset(cfg: Config) -> Any:
    """Builds the data set of ``cfg.test_dataloader``.

    Raises:
        ValueError: There is none, or its files are not there.
    """
    if "test_dataloader" not in cfg:
        raise ValueError("the config has no test_dataloader")
    check_dataset_files(cfg, ("test",))
    init_default_scope(cfg.get("default_scope", "mmengine"))
    try:
        return DATASETS.build(cfg.test_dataloader.dataset)
    except CONFIG_MISTAKES as error:
        raise ValueError(f"the test data of the config cannot be built: {error}") from error


def image_shape(cfg: Config) -> tuple[int, int]:
    """Height and width of a test image of a config: the padded square of a detector, else what its pipeline resizes to.

    Raises:
        ValueError: The config has no test data, or resizes them to no fixed size.
    """
    if "crop_size" in cfg and "test_dataloader" not in cfg:
        return tuple(cfg.crop_size)  # a distillation
    divisor = cfg.model.get("data_preprocessor", {}).get("pad_size_divisor", 1)
    if divisor > 100:
        return divisor, divisor
    crop = cfg.model.get("test_cfg", {}).get("crop_size")
    if crop is not None:
        return tuple(crop)
    _, dataset = next(leaf_datasets(cfg.get("test_dataloader", {}).get("dataset", {}), ""))
    steps = [step for step in dataset.get("pipeline", ()) if step["type"] in ("Resize", "FixScaleResize")]
    if not steps or "scale" not in steps[0]:
        raise ValueError("the test pipeline of the config has no Resize with a scale, so give the image's size")
    width, height = steps[0]["scale"]
    return height, width


def dataset_metainfo(cfg: Config) -> dict[str, Any]:
    """Classes and palette of ``cfg.test_dataloader``, without touching its files."""
    init_default_scope(cfg.get("default_scope", "mmengine"))
    _, dataset = next(leaf_datasets(cfg.get("test_dataloader", {}).get("dataset", {}), ""))
    with DATASETS.switch_scope_and_registry(None) as registry:
        declared = getattr(registry.get(dataset["type"]), "METAINFO", {}) if "type" in dataset else {}
    return {**declared, **(dataset.get("metainfo") or {})}
