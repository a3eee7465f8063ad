"""Training on a frozen backbone without computing it again in every epoch."""

from __future__ import annotations

import logging
from typing import Any

from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch.distributed.fsdp import FullyShardedDataParallel

from ..models import ViT
from ..models.feature_cache import FeatureCache
from ..registry import HOOKS

_WORTH_KEEPING = 0.02  # share of images that were found in the first two passes; flips in four ways give an eighth


@HOOKS.register_module()
class FeatureCacheHook(Hook):
    """Keeps the tokens that the frozen blocks of every ViT make of an image, in memory, while a training runs.

    The result is that of a training without it, to rounding. It pays where images come back unchanged: with a fixed
    resize and flips, and padded to one size; not with random scales, crops or colours. Evaluation does not use it::

        custom_hooks = [dict(type='vitdense.FeatureCacheHook')]

    Args:
        max_gb: Memory for the tokens in 10**9 bytes, per process. ViT-S needs 1.8 MB for a 640 x 480 image, and as much
            again for each further map in ``out_indices``. Defaults to 8.

    Raises:
        ValueError: ``max_gb`` is not positive, no block of the model is frozen, or the model is sharded by FSDP.
    """

    def __init__(self, max_gb: float = 8.0) -> None:
        if not max_gb > 0:
            raise ValueError(f"max_gb={max_gb} of FeatureCacheHook must be positive")
        self.max_gb = max_gb
        self.passes = 0  # over the training data, since the training was started

    def _vits(self, runner: Runner) -> list[ViT]:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        return [module for module in model.modules() if isinstance(module, ViT)]

    def before_train(self, runner: Runner) -> None:
        """Gives every ViT with frozen blocks an empty cache."""
        if any(isinstance(module, FullyShardedDataParallel) for module in runner.model.modules()):
            # A process that finds its images would skip the exchange of weights that the others wait for.
            raise ValueError("FeatureCacheHook cannot be used with FSDP; take it out of custom_hooks")
        vits = [vit for vit in self._vits(runner) if vit.frozen_stages >= 1]
        if not vits:
            raise ValueError(
                "FeatureCacheHook caches frozen blocks, but no vitdense.ViT of this model has any: set "
                "model.backbone.frozen_stages, or take the hook out of custom_hooks"
            )
        for vit in vits:
            vit.feature_cache = FeatureCache(int(self.max_gb * 1e9 / len(vits)))

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Logs after each pass over the data how many images were found; gives up where two found hardly any."""
        caches = [vit.feature_cache for vit in self._vits(runner) if vit.feature_cache is not None]
        seen = max((cache.hits + cache.misses for cache in caches), default=0)
        passes = seen * get_world_size() // len(runner.train_dataloader.dataset)
        if passes == self.passes:
            return
        self.passes = passes
        for vit in self._vits(runner):
            cache = vit.feature_cache
            if cache is None:
                continue
            rejected = f"; {cache.rejected} did not fit" if cache.rejected else ""
            print_log(
                f"Frozen features: {cache.hits} of {cache.hits + cache.misses} images found again, {len(cache)} kept "
                f"in {cache.num_bytes / 1e9:.2f} of {self.max_gb:g} GB{rejected}",
                logger="current",
            )
            if passes >= 2 and cache.hits < _WORTH_KEEPING * (cache.hits + cache.misses):
                print_log(
                    f"FeatureCacheHook found {cache.hits} images again in two passes over the data and switches itself "
                    "off: random scales, crops or colours make every image new, and so does padding to the largest "
                    "image of a batch. Flips and a fixed padding can be cached.",
                    logger="current",
                    level=logging.WARNING,
                )
                vit.feature_cache = None

    def after_train(self, runner: Runner) -> None:
        """Gives the memory back."""
        for vit in self._vits(runner):
            vit.feature_cache = None
