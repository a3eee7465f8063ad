"""Training one config in several ways and on several numbers of images, each once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from deploy.files import write_json

from ..datasets import leaf_datasets
from .finetune import apply_finetune

# What evaluators of MMSegmentation and MMDetection call the score, and the factor that makes it percent.
METRICS = {"IoUMetric": ("mIoU", 1.0), "CocoMetric": ("coco/bbox_mAP", 100.0)}
RECIPE_FILE, RESULT_FILE = "recipe.py", "result.json"


@dataclass(frozen=True)
class Recipe:
    """One way to train a config.

    Args:
        finetune: See :func:`.finetune.apply_finetune`.
        images: Training images that are used.
        config: The config that follows.
        metric: Name of its score in the log.
        factor: That makes it percent.
    """

    finetune: str
    images: int
    config: Config
    metric: str
    factor: float

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.finetune}-{self.images}"


@dataclass(frozen=True)
class Result:
    """What a recipe gave.

    Args:
        finetune: See :class:`Recipe`.
        images: Likewise.
        seconds: From the start of the process to its end, the last validation included.
        metric: Name of the score.
        score: In percent.
    """

    finetune: str
    images: int
    seconds: int
    metric: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(configs: dict[str, Config], images: Sequence[int | None]) -> list[Recipe]:
    """The recipes, checked before any of them is trained.

    Args:
        configs: A fresh copy of the config for each mode of :func:`.finetune.apply_finetune`; they are changed.
        images: Numbers of training images; None for all. Fewer are spread evenly over the data (neighbours may be
            frames of one video) and repeated, so that every recipe takes the steps of the config's schedule.

    Raises:
        ValueError: A mode that does not fit the config, more images than there are, a training set of several parts, or
            an evaluator without a known score.
    """
    recipes = []
    for mode, cfg in configs.items():
        apply_finetune(cfg, mode)
        metric, factor = _metric(cfg)
        total = _length(cfg)
        for count in images:
            number = total if count is None else count
            recipes.append(Recipe(mode, number, _with_images(cfg, number, total), metric, factor))
    return recipes


def _metric(cfg: Config) -> tuple[str, float]:
    evaluator = cfg.get("val_evaluator") or {}
    kinds = [str(item.get("type")) for item in (evaluator if isinstance(evaluator, list) else [evaluator])]
    for kind in kinds:
        if kind in METRICS:
            return METRICS[kind]
    raise ValueError(f"val_evaluator is {kinds}; recipes are compared by one of {', '.join(METRICS)}")


def _length(cfg: Config) -> int:
    init_default_scope(cfg.get("default_scope", "mmengine"))
    return len(DATASETS.build(cfg.train_dataloader.dataset))


def _with_images(cfg: Config, count: int, total: int) -> Config:
    cfg = Config(cfg.to_dict())
    if not 1 <= count <= total:
        raise ValueError(f"{count} images: expected a number from 1 to {total}, all training images")
    if count < total:
        leaves = list(leaf_datasets(cfg.train_dataloader.dataset, ""))
        if len(leaves) > 1:
            raise ValueError(
                f"the training data have {len(leaves)} parts; a part of the images can be taken of one only"
            )
        chosen = [i * total // count for i in range(count)]
        leaves[0][1].indices = [chosen[i % count] for i in range(total)]
    return cfg


def train(recipe: Recipe, out: Path, command: Sequence[str]) -> Result:
    """Trains a recipe in a process of its own, or reads what an earlier call left.

    Args:
        recipe: The recipe.
        out: Folder that gets a folder of the recipe's name: config, log, checkpoints, result.
        command: That trains a config; config and ``--work-dir`` are appended.

    Raises:
        ValueError: The folder holds a result of another config, or the training failed.
    """
    work = out / recipe.name
    text = recipe.config.pretty_text
    done = work / RESULT_FILE
    if done.is_file():
        if (work / RECIPE_FILE).read_text() != text:
            raise ValueError(
                f"{work} holds the result of another config (compare its {RECIPE_FILE}); choose another --out, or "
                "remove that folder"
            )
        return Result(**json.loads(done.read_text()))
    shutil.rmtree(work, ignore_errors=True)  # the start of an interrupted run
    work.mkdir(parents=True)
    (work / RECIPE_FILE).write_text(text)
    start = time.monotonic()
    with open(work / "train.log", "w") as log:
        line = [*command, str(work / RECIPE_FILE), "--work-dir", str(work / "run")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        code = subprocess.run(line, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    if code:
        raise ValueError(f"training {recipe.name} ended with exit code {code}; see {work / 'train.log'}")
    seconds = round(time.monotonic() - start)
    result = Result(recipe.finetune, recipe.images, seconds, recipe.metric, _last_score(work / "run", recipe))
    write_json(done, result.to_dict())
    return result


def _last_score(run: Path, recipe: Recipe) -> float:
    """In percent; 0 where the evaluator found nothing to score, as MMDetection's does without detections."""
    for log in sorted(run.glob("*/vis_data/scalars.json"), reverse=True):
        for line in reversed(log.read_text().splitlines()):
            if recipe.metric in (values := json.loads(line)):
                return round(float(values[recipe.metric]) * recipe.factor, 2)
    return 0.0
