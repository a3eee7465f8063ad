"""Labelled images of a config other than its test data."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from pathlib import Path

from mmengine.config import Config

from deploy.files import sha256_of
from deploy.manifest import Manifest

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
        limit: Most images; evenly spaced if there are more.
        minimum: Fewest images.
        excluded: Hashes (sha256) of image files that are not taken.

    Returns:
        The data and the hash of each image.

    Raises:
        ValueError: The config has no such data, or too few images are left.
    """
    whole = open_data(manifest, _as_test(cfg, split, None))
    hashes = [sha256_of(path) for path in whole.paths()]
    free = [place for place, digest in enumerate(hashes) if digest not in excluded]
    if len(free) < minimum:
        raise ValueError(
            f"{len(free)} of the {len(hashes)} images of the {split} data are neither calibrated on nor scored in the "
            f"end, at least {minimum} are needed; calibrate on fewer images, or take another split"
        )
    count = min(limit, len(free))
    chosen = [free[index * len(free) // count] for index in range(count)]
    return open_data(manifest, _as_test(cfg, split, chosen)), tuple(hashes[place] for place in chosen)


def _as_test(cfg: Config, split: str, indices: Sequence[int] | None) -> Config:
    """A copy of a config whose test data are some images of another split, read as the test data are."""
    loader = cfg.get(f"{split}_dataloader")
    if not loader:
        raise ValueError(f"the config has no {split}_dataloader, whose labelled images were asked for")
    result = copy.deepcopy(cfg)
    dataset = copy.deepcopy(loader.dataset)
    while "dataset" in dataset:  # repeated, or with other images mixed in
        dataset = dataset.dataset
    if "datasets" in dataset:
        raise ValueError(
            f"the {split} data of the config are several data sets in one; give one of them by --cfg-options"
        )
    test = result.test_dataloader.dataset
    while "dataset" in test:
        test = test.dataset
    dataset.update(test_mode=True, pipeline=test.pipeline)
    dataset.pop("filter_cfg", None)  # has no effect on test data, but MMDetection's XMLDataset refuses it there
    if indices is not None:
        dataset.indices = list(indices)
    result.test_dataloader.dataset = dataset
    result.test_evaluator = []  # its annotation file is that of the test data
    return result


def image_hashes(paths: Sequence[Path]) -> set[str]:
    """SHA-256 of each file."""
    return {sha256_of(path) for path in paths}
