"""Several processes: on CPUs, and with the weights sharded (FSDP)."""

from __future__ import annotations

import os
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import is_distributed
from mmengine.model import MMFullyShardedDataParallel
from torch import nn

from ..models.blocks import Block
from ..registry import FUNCTIONS, MODEL_WRAPPERS


def prepare_processes(cfg: Config) -> None:
    """Makes a launched training work on a machine without CUDA; elsewhere it changes nothing.

    MMEngine's ``init_dist`` calls torch.cuda.set_device whatever the backend, so the process group is made here, with
    gloo, before the Runner looks for one; and its wrapper takes the local rank for the number of a GPU.

    Args:
        cfg: The config, with ``launcher`` set; its wrapper is changed.
    """
    if cfg.launcher != "pytorch" or torch.cuda.is_available() or is_distributed():
        return
    os.environ.setdefault("LOCAL_RANK", "0")
    torch.distributed.init_process_group(backend="gloo")
    if "strategy" not in cfg:
        wrapper = dict(type="MMDistributedDataParallel", device_ids=None, broadcast_buffers=False)
        wrapper["find_unused_parameters"] = cfg.get("find_unused_parameters", False)
        cfg.setdefault("model_wrapper_cfg", wrapper)


@MODEL_WRAPPERS.register_module()
class FullyShardedDataParallel(MMFullyShardedDataParallel):
    """MMEngine's wrapper for FSDP, which also runs on CPUs: its strategy takes the local rank for a GPU's number.

    Args:
        device_id: Number of the GPU; ignored where there is none.
        **kwargs: Of :class:`mmengine.model.MMFullyShardedDataParallel`.
    """

    def __init__(self, *, device_id: int, **kwargs: Any) -> None:
        super().__init__(device_id=device_id if torch.cuda.is_available() else torch.device("cpu"), **kwargs)


@FUNCTIONS.register_module()
def wrap_blocks(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
    """FSDP's wrapping policy: every transformer block of a ViT is a unit of its own.

    Args:
        module: The module in question.
        recurse: Whether FSDP asks if it shall look at the module's children; it shall.
        nonwrapped_numel: Parameters that are not wrapped yet.
    """
    return recurse or isinstance(module, Block)
