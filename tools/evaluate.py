"""Score a bundle on the test data of a config, through the runtime and preprocessing of the device.

python tools/evaluate.py BUNDLE CONFIG --runtime openvino|onnxruntime [--precision fp32|fp16|int8] [--json FILE]
"""

import argparse
from pathlib import Path

from mmengine.config import DictAction
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import check_folder_of, write_json
from deploy.predictor import Predictor, default_threads
from deploy.runtimes import RUNTIMES
from deploy.specs import PRECISIONS, TARGETS
from vitdense.config import load_config
from vitdense.evaluation import LABELS, Score, evaluate, open_data


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score a bundle on the test data of a config")
    parser.add_argument("bundle", type=Path, help="folder that tools/export.py wrote")
    parser.add_argument("config", help="config whose test_dataloader is used")
    parser.add_argument("--runtime", default="openvino", choices=RUNTIMES)
    parser.add_argument("--precision", choices=PRECISIONS, help="default: what the runtime runs best")
    parser.add_argument("--target", choices=TARGETS, help="take a file made for this target")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores here too")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    check_folder_of("--json", args.json)
    cfg = load_config(args.config, args.cfg_options)
    predictor = Predictor(
        args.bundle,
        runtime=args.runtime,
        precision=args.precision,
        target=args.target,
        threads=args.threads,
        score=0.0,
    )
    console = Console()
    data = open_data(predictor.manifest, cfg)
    scores, _ = evaluate([predictor], data, lambda items: track(items, "Scoring", console=console))
    console.print(score_table(scores[0], f"{predictor.filename} on {args.runtime}"))
    if args.json:
        write_json(args.json, {**scores[0].to_dict(), "model": predictor.describe(), "config": args.config})
        console.print(f"Scores written to {args.json}")


def score_table(score: Score, title: str) -> Table:
    table = Table(title=f"{title}, {score.images} images")
    table.add_column("class")
    table.add_column(score.class_measure.replace("iou", "IoU").replace("ap", "box AP"), justify="right")
    for name, value in score.by_class.items():
        table.add_row(name, "absent" if value != value else f"{value:.2f}")
    table.add_section()
    for name, value in score.values.items():
        table.add_row(LABELS[name], f"{value:.2f}")
    return table


if __name__ == "__main__":
    run_cli(main)
