"""Labelled images of a config other than its test data."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from mmengine.config import Config

from deploy.files import sha256_of
from deploy.manifest import Manifest

from ..datasets import leaf_datasets
from .evaluate import Data, open_data

SPLITS = ("train", "val")


def open_split(
    manifest: Manifest, cfg: Config, split: str, limit: int, minimum: int, excluded: Collection[str]
) -> tuple[Data, tuple[str, ...]]:
    """Reads images of the training or validation data of a config, to be scored like test data.

    Args:
        manifest: Of the bundle that they are for.
        cfg: The config.
        split: 'train' or 'val'.
        limit: Most images; spread over the split if there are more.
        minimum: Fewest images.
        excluded: Hashes (sha256) of image files that are not taken.

    Returns:
        The data and the hash of each image.

    Raises:
        ValueError: The config has no such data, or too few images are left, or ``limit`` is below ``minimum``.
    """
    if limit < minimum:
        raise ValueError(f"{limit} images are fewer than the {minimum} labelled ones that tuning needs")
    whole = open_data(manifest, _as_test(cfg, split))
    paths = whole.paths()
    step = max(len(paths) // limit, 1)
    chosen: dict[int, str] = {}
    for place in [place for first in range(step) for place in range(first, len(paths), step)]:
        digest = sha256_of(paths[place])
        if digest not in excluded:
            chosen[place] = digest
        if len(chosen) == limit:
            break
    if len(chosen) < minimum:
        raise ValueError(
            f"{len(chosen)} of the {len(paths)} images of the {split} data are neither calibrated on nor scored in the "
            f"end, at least {minimum} are needed; calibrate on fewer images, or take another split (in many configs "
            "the val data are the test data: take train there)"
        )
    places = sorted(chosen)
    return whole.subset(places), tuple(chosen[place] for place in places)


def _as_test(cfg: Config, split: str) -> Config:
    """A copy of a config whose test data are those of another split, read as the test data are."""
    if not cfg.get(f"{split}_dataloader"):
        raise ValueError(f"the config has no {split}_dataloader, whose labelled images were asked for")
    dataset = copy.deepcopy(_only_leaf(cfg, split))
    dataset.update(test_mode=True, pipeline=_only_leaf(cfg, "test").pipeline)
    dataset.pop("filter_cfg", None)  # has no effect on test data, but MMDetection's XMLDataset refuses it there
    result = copy.deepcopy(cfg)
    result.test_dataloader.dataset = dataset
    result.test_evaluator = []  # its annotation file is that of the test data
    return result


def _only_leaf(cfg: Config, split: str) -> Any:
    """The data set inside of those that repeat it or mix its images."""
    leaves = list(leaf_datasets(cfg[f"{split}_dataloader"].dataset, ""))
    if len(leaves) != 1:
        raise ValueError(f"the {split} data of the config are {len(leaves)} data sets; choose one with --cfg-options")
    return leaves[0][1]
