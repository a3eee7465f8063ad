"""Which real images an export is checked on."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config

from deploy.io import list_images

from ..engine.build import build_test_dataset


def parity_images(cfg: Config, folder: str | None, count: int) -> list[Path]:
    """Picks images, evenly spaced over what there is.

    Args:
        cfg: The config; its test data are used when no folder is given.
        folder: A folder (or one file) of images.
        count: How many to take at most.

    Raises:
        ValueError: No folder was given and the config's test data are not there, or there is no image.
    """
    if folder is not None:
        images = list_images([folder])
    else:
        try:
            dataset = build_test_dataset(cfg)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"parity is checked on real images, and the test data of the config are not there: give a folder with "
                f"--images DIR. ({str(error).splitlines()[0]})"
            ) from None
        images = [Path(dataset.get_data_info(index)["img_path"]) for index in range(len(dataset))]
        if not images:
            raise ValueError("the test data of the config hold no image; give a folder with --images DIR")
    step = max(len(images) / count, 1.0)
    return [images[int(index * step)] for index in range(min(count, len(images)))]
