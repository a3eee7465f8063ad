"""Score a checkpoint on the test data of its config, as the evaluation inside training does.

python tools/test.py CONFIG CHECKPOINT [--work-dir DIR] [--out FILE.pkl] [--show-dir DIR] [--cfg-options key=value ...]
"""

import argparse
import os

from mmengine.config import DictAction
from mmengine.model import is_model_wrapper

from deploy.cli import run_cli
from vitdense.checkpoints import load_trained, use_safe_loader
from vitdense.config import default_work_dir, load_config
from vitdense.datasets import check_dataset_files
from vitdense.engine.runner import build_runner, dump_predictions, run_built, save_pictures


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Test a detector or a segmenter")
    parser.add_argument("config", help="config file")
    parser.add_argument("checkpoint", help="checkpoint (.pth), or a delta on pre-trained weights (.safetensors)")
    parser.add_argument("--work-dir", help="folder for the log and metrics (default: work_dirs/<config name>)")
    parser.add_argument("--out", help="write the raw predictions to this .pkl file, for offline evaluation")
    parser.add_argument("--show-dir", help="write pictures of the predictions into this folder")
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
    check_dataset_files(cfg, ("test",))
    # Runner.test() would load these over the checkpoint that was asked for.
    cfg.load_from, cfg.resume = None, False
    if args.show_dir:
        save_pictures(cfg, args.show_dir)
    runner = build_runner(cfg)
    # MMEngine's own load_from is not strict: a checkpoint of another model would score as noise.
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    load_trained(model, args.checkpoint)
    if args.out:
        dump_predictions(runner, args.out)
    run_built(runner, runner.test)


if __name__ == "__main__":
    run_cli(main)
