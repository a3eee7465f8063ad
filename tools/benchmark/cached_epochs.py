"""How much faster an epoch on a frozen backbone is with its features kept (vitdense.FeatureCacheHook).

python tools/benchmark/cached_epochs.py CONFIG [--finetune linear] [--images N] [--rounds N] [--threads N] [--json FILE]

Whole training steps on the config's own images, loading included, with and without kept features in turn, after a first
epoch that fills the memory. Both start from the same weights; the largest difference of their losses is given.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, DictAction
from mmengine.dataset import pseudo_collate
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS
from mmengine.runner import set_random_seed
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import check_folder_of, write_json
from deploy.machine import cpu_model
from deploy.predictor import default_threads
from vitdense.checkpoints import use_safe_loader
from vitdense.config import load_config
from vitdense.datasets import check_dataset_files
from vitdense.engine.build import build_model
from vitdense.engine.finetune import apply_finetune
from vitdense.models import ViT
from vitdense.models.feature_cache import FeatureCache

CACHE_BYTES = 4 * 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description="Epochs on a frozen backbone, with and without kept features")
    parser.add_argument("config", help="config of a detector or segmenter with pre-trained weights")
    parser.add_argument("--finetune", choices=("linear", "head"), default="head", help="what trains (default: head)")
    parser.add_argument("--images", type=int, default=16, help="training images of an epoch (default: 16)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each (default: 3)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    args = parser.parse_args()
    for name in ("images", "rounds", "threads"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} {getattr(args, name)} must be 1 or more")
    check_folder_of("--json", args.json)
    use_safe_loader()
    cfg = load_config(args.config, args.cfg_options)
    check_dataset_files(cfg, ("train",))
    apply_finetune(cfg, args.finetune)
    torch.set_num_threads(args.threads)
    record = measure(cfg, args.images, args.rounds)
    record |= {"config": args.config, "finetune": args.finetune, "threads": args.threads, "cpu": cpu_model()}
    Console().print(table_of(record))
    if args.json:
        write_json(args.json, record)


def measure(cfg: Config, images: int, rounds: int) -> dict[str, Any]:
    """Seconds of each epoch of both kinds, and how far their losses are apart."""
    plain, kept = Training(cfg, images), Training(cfg, images)
    kept.keep_features()
    for training in (plain, kept):  # the one that fills the memory; for the other the first steps
        training.epoch()
    times: dict[str, list[float]] = {"computed": [], "kept": []}
    difference = 0.0
    for _ in track(range(rounds), description="epochs"):
        losses = []
        for name, training in (("computed", plain), ("kept", kept)):
            start = time.perf_counter()
            losses.append(training.epoch())
            times[name].append(time.perf_counter() - start)
        difference = max(difference, *(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True)))
    return {
        "images": images,
        "seconds": times,
        "ratios": [a / b for a, b in zip(times["computed"], times["kept"], strict=True)],
        "loss_difference": difference,
    }


class Training:
    """A model, its optimizer and the first images of the training set, without flips: each epoch sees the same."""

    def __init__(self, cfg: Config, images: int) -> None:
        set_random_seed(0)
        self.model = build_model(cfg)
        self.model.init_weights()
        self.model.train()
        self.optimizer = build_optim_wrapper(self.model, cfg.optim_wrapper)
        data = cfg.train_dataloader.dataset.to_dict() | {"indices": images}
        data["pipeline"] = [step for step in data["pipeline"] if step["type"] != "RandomFlip"]
        self.dataset = DATASETS.build(data)
        self.batch = cfg.train_dataloader.batch_size

    def keep_features(self) -> None:
        """What the hook does before a training."""
        for module in self.model.modules():
            if isinstance(module, ViT):
                module.feature_cache = FeatureCache(CACHE_BYTES)

    def epoch(self) -> list[float]:
        """One pass over the images; the loss of each step."""
        torch.manual_seed(0)  # dropout of the heads
        losses = []
        for start in range(0, len(self.dataset), self.batch):
            places = range(start, min(start + self.batch, len(self.dataset)))
            batch = pseudo_collate([self.dataset[place] for place in places])
            losses.append(self.model.train_step(batch, self.optimizer)["loss"].item())
        return losses


def table_of(record: dict[str, Any]) -> Table:
    """For people."""
    title = f"{Path(record['config']).stem}, {record['images']} images, {record['threads']} threads, {record['cpu']}"
    table = Table(title=title)
    for column in ("features", "seconds an epoch", "faster"):
        table.add_column(column, justify="left" if column == "features" else "right")
    computed, kept = (statistics.median(record["seconds"][name]) for name in ("computed", "kept"))
    low, high = min(record["ratios"]), max(record["ratios"])
    table.add_row("computed", f"{computed:.2f}", "")
    table.add_row("kept", f"{kept:.2f}", f"{statistics.median(record['ratios']):.1f} ({low:.1f} to {high:.1f})")
    table.caption = f"largest relative difference of a loss: {record['loss_difference']:.1e}"
    return table


if __name__ == "__main__":
    run_cli(main)
