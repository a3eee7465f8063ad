"""Turning a config and the options of train and test into an MMEngine Runner."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.evaluator import DumpResults
from mmengine.hooks import Hook
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from ..checkpoints import read_checkpoint
from ..errors import CONFIG_MISTAKES
from .distributed import prepare_processes
from .strides import check_strides

_Result = TypeVar("_Result")


def enable_amp(cfg: Config) -> None:
    """Switches the optimizer wrapper to mixed precision with dynamic loss scaling.

    Raises:
        ValueError: There is no accelerator; MMEngine's AmpOptimWrapper needs one.
    """
    if get_device() == "cpu":
        raise ValueError(
            "--amp needs an accelerator (CUDA, NPU, MPS, ...), and torch sees none here; train without --amp"
        )
    cfg.optim_wrapper.type = "AmpOptimWrapper"
    cfg.optim_wrapper.loss_scale = "dynamic"


def enable_auto_scale_lr(cfg: Config) -> None:
    """Scales the learning rate with the real batch size.

    Raises:
        ValueError: The config does not say for which batch size its rate was chosen.
    """
    if "base_batch_size" not in cfg.get("auto_scale_lr", {}):
        raise ValueError("--auto-scale-lr needs auto_scale_lr = dict(base_batch_size=...) in the config")
    cfg.auto_scale_lr.enable = True


def set_resume(cfg: Config, resume: str | None) -> None:
    """``--resume`` as in MMDetection: 'auto' takes the latest checkpoint of the work dir, else a checkpoint's path.

    Raises:
        ValueError: The file is no checkpoint of a training.
    """
    if resume is None:
        return
    cfg.resume = True
    cfg.load_from = None if resume == "auto" else resume
    if cfg.load_from is not None:
        meta = read_checkpoint(cfg.load_from).get("meta")
        if not isinstance(meta, dict) or not {"epoch", "iter"} <= set(meta):
            raise ValueError(
                f"--resume {resume}: the file holds weights but no state of a training; to start from the weights of a "
                "full checkpoint use --cfg-options load_from=CHECKPOINT"
            )


def build_runner(cfg: Config) -> Runner:
    """Builds the Runner; the launcher 'pytorch' works without a GPU too (:func:`.distributed.prepare_processes`).

    Raises:
        ValueError: The config names a type or an argument that does not exist, or its heads have other strides than
            the maps.
    """
    check_strides(cfg)
    prepare_processes(cfg)
    try:
        runner = RUNNERS.build(cfg) if "runner_type" in cfg else Runner.from_cfg(cfg)
        if not torch.cuda.is_available() and isinstance(runner.model, nn.Module):
            # Many configs of MMSegmentation have SyncBN, which needs a GPU. FlexibleRunner builds its model later.
            runner.model = revert_sync_batchnorm(runner.model)
        return runner
    except CONFIG_MISTAKES as error:  # an unknown type or an argument out of range; MMEngine names it
        raise _config_error(error) from error


def run_built(runner: Runner, run: Callable[[], _Result]) -> _Result:
    """Calls ``runner.train`` or ``runner.test``, which build optimizer, schedules and data only then.

    Raises:
        ValueError: One of those cannot be built. What fails later is no mistake of the config and is raised as it is.
    """
    built = _Built()
    runner.register_hook(built)
    try:
        return run()
    except CONFIG_MISTAKES as error:
        if built.reached:
            raise
        raise _config_error(error) from error


class _Built(Hook):
    """Notes that the Runner has built all the config names: ``before_run`` is the first hook after that."""

    reached = False

    def before_run(self, runner: Runner) -> None:
        self.reached = True


def _config_error(error: Exception) -> ValueError:
    """One line that names the entry: for an unknown type MMEngine may say no more than 'None is not callable'."""
    building = ""
    trace = error.__traceback__
    while trace is not None:  # the innermost entry with a type that was being built
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, dict) and isinstance(value.get("type"), str):
                building = f", while building '{value['type']}'"
        trace = trace.tb_next
    return ValueError(f"this config cannot be built: {error}{building} (VITDENSE_DEBUG=1 shows where)")


def save_pictures(cfg: Config, folder: str) -> None:
    """Makes the test loop draw its predictions into ``folder``, through the visualization hook of the config.

    Raises:
        ValueError: The config has no visualization hook.
    """
    hook = cfg.get("default_hooks", {}).get("visualization")
    if hook is None:
        raise ValueError(
            "--show-dir needs default_hooks.visualization in the config (DetVisualizationHook or SegVisualizationHook)"
        )
    hook.draw = True
    if "Det" in hook.type:
        hook.test_out_dir = os.path.abspath(folder)  # MMDetection's hook writes the files itself
    else:
        cfg.visualizer.save_dir = folder  # MMSegmentation's leaves it to the visualizer's backend


def dump_predictions(runner: Runner, path: str) -> None:
    """Makes the test loop write its raw predictions to a pickle file.

    Raises:
        ValueError: Another ending than .pkl or .pickle.
    """
    if not path.endswith((".pkl", ".pickle")):
        raise ValueError(f"--out {path}: expected a file ending in .pkl or .pickle")
    runner.test_evaluator.metrics.append(DumpResults(out_file_path=path))
