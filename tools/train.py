"""Train a detector (MMDetection) or a segmenter (MMSegmentation) from a config.

python tools/train.py configs/vitdet_coco.py [--work-dir DIR] [--finetune {linear,head,lora,full}]
    [--resume [CHECKPOINT]] [--cfg-options key=value ...]
"""

import argparse
import os

from mmengine.config import DictAction

from deploy.cli import run_cli
from vitdense.checkpoints import use_safe_loader
from vitdense.config import default_work_dir, load_config
from vitdense.datasets import check_dataset_files
from vitdense.engine.finetune import FINETUNE, apply_finetune
from vitdense.engine.runner import build_runner, enable_amp, enable_auto_scale_lr, run_built, set_resume


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a detector or a segmenter")
    parser.add_argument("config", help="config file")
    parser.add_argument("--work-dir", help="folder for logs and checkpoints (default: work_dirs/<config name>)")
    parser.add_argument("--amp", action="store_true", help="mixed precision; needs an accelerator")
    parser.add_argument("--auto-scale-lr", action="store_true", help="scale the learning rate with the batch size")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="CHECKPOINT",
        help="go on from this checkpoint, or from the latest in the work dir when none is given",
    )
    parser.add_argument(
        "--finetune",
        choices=FINETUNE,
        help="how much of the backbone trains: linear probe, head only, LoRA, or all with layer-wise decay "
        "(default: as the config says)",
    )
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help="set by the launcher")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    use_safe_loader()
    cfg = load_config(args.config, args.cfg_options)
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get("work_dir") or default_work_dir(args.config)
    if args.amp:
        enable_amp(cfg)
    if args.auto_scale_lr:
        enable_auto_scale_lr(cfg)
    if args.finetune:
        apply_finetune(cfg, args.finetune)
    set_resume(cfg, args.resume)
    check_dataset_files(cfg, ("train", "val"))
    runner = build_runner(cfg)
    run_built(runner, runner.train)


if __name__ == "__main__":
    run_cli(main)
