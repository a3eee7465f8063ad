"""Reading config files with errors that help."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.utils import is_installed

# `_base_ = "mmseg::..."`: MMEngine asks for the distribution 'mmsegmentation', which the maintained line calls
# otherwise; by the name of its module it is found.
if not is_installed(MODULE2PACKAGE["mmseg"]) and is_installed("mmseg"):
    MODULE2PACKAGE["mmseg"] = "mmseg"


def load_config(path: str | Path, options: Mapping[str, Any] | None = None) -> Config:
    """Reads an OpenMMLab config and merges ``--cfg-options`` into it.

    ``{{$VITDENSE_DATA:data}}`` in our configs is the folder that holds the data sets: ``data`` unless the environment
    variable is set.

    Args:
        path: The config file (.py, .json or .yaml).
        options: Overrides by dotted key, as ``mmengine.DictAction`` parses them.

    Raises:
        FileNotFoundError: No such file.
        ValueError: The file is no config, or an option does not fit it.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"config {path} is a folder; give a file, the configs of this project lie under configs/")
    if not path.is_file():
        raise FileNotFoundError(f"config {path} does not exist; the configs of this project lie under configs/")
    if path.suffix not in (".py", ".json", ".yaml", ".yml"):
        raise ValueError(f"config {path} has the ending '{path.suffix}'; expected .py, .json or .yaml")
    try:
        cfg = Config.fromfile(str(path))
    except (Exception, SystemExit) as error:  # a .py config is a program: it may raise whatever it likes
        raise ValueError(f"config {path} cannot be read: {type(error).__name__}: {error}") from error
    if options:
        try:
            cfg.merge_from_dict(dict(options))
        except (KeyError, TypeError, IndexError, AssertionError) as error:
            raise ValueError(f"--cfg-options {sorted(options)} do not fit {path}: {error}") from error
    return cfg


def default_work_dir(path: str | Path) -> str:
    """``work_dirs/<name of the config>``, as in MMDetection."""
    return os.path.join("work_dirs", Path(path).stem)
