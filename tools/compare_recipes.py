"""Train one config in several ways and on several numbers of images, and draw what each is worth.

python tools/compare_recipes.py configs/vitseg/vits-dinov2_fcn_camvid.py --finetune linear lora full --images 50 all \
    --out outputs/camvid_recipes

Every run takes the steps of the config's schedule, also on fewer images. A run that is done is not repeated: started
again after an interruption, the command goes on with those that are left.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
from mmengine.config import Config, DictAction
from mmengine.registry import DATASETS, init_default_scope
from rich.console import Console
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import atomic_write, write_json
from vitdense.config import load_config
from vitdense.datasets import check_dataset_files
from vitdense.engine.finetune import FINETUNE, apply_finetune

matplotlib.use("Agg")
METRICS = {"mIoU": 1.0, "coco/bbox_mAP": 100.0}  # and the factor that makes it percent
TRAIN = Path(__file__).with_name("train.py")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train one config in several ways and on several numbers of images")
    parser.add_argument("config", help="config of a detector or a segmenter")
    parser.add_argument("--finetune", nargs="+", choices=FINETUNE, default=["head", "lora", "full"])
    parser.add_argument("--images", nargs="+", default=["50", "all"], help="numbers of training images, or 'all'")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs, recipes.json, .md and .png")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args.config, args.cfg_options)
    check_dataset_files(cfg, ("train", "val"))
    total = dataset_length(cfg)
    counts = [total if text == "all" else number_of_images(text, total) for text in args.images]
    args.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    rows: list[dict[str, Any]] = []
    for mode in args.finetune:
        for count in counts:
            console.print(f"{mode} on {count} images ({len(rows) + 1} of {len(args.finetune) * len(counts)})")
            rows.append(run(args, mode, count, total))
    write_json(args.out / "recipes.json", {"config": str(args.config), "total_images": total, "runs": rows})
    console.print(table_of(rows, Path(args.config).stem))
    with atomic_write(args.out / "recipes.md") as temporary:
        temporary.write_text(markdown_of(rows))
    draw(rows, Path(args.config).stem, args.out / "recipes.png")
    console.print(f"Written: {args.out}/recipes.json, recipes.md and recipes.png")


def number_of_images(text: str, total: int) -> int:
    """A number of images from the command line."""
    if not text.isdecimal() or not 1 <= int(text) <= total:
        raise ValueError(
            f"--images {text}: expected 'all' or a number from 1 to {total}, the images of the training data"
        )
    return int(text)


def dataset_length(cfg: Config) -> int:
    """Images of the config's training data."""
    init_default_scope(cfg.default_scope)
    return len(DATASETS.build(cfg.train_dataloader.dataset))


def run(args: argparse.Namespace, mode: str, count: int, total: int) -> dict[str, Any]:
    """Trains once, in a process of its own, or reads what an earlier start of the command left."""
    work = args.out / f"{mode}-{count}"
    result = work / "result.json"
    if result.is_file():
        return dict(json.loads(result.read_text()))
    shutil.rmtree(work, ignore_errors=True)  # the start of an interrupted run
    work.mkdir()
    cfg = load_config(args.config, args.cfg_options)
    apply_finetune(cfg, mode)
    if count < total:
        dataset = cfg.train_dataloader.dataset
        dataset.indices = [i * total // count for i in range(count)]  # evenly: neighbours may be frames of one video
        cfg.train_dataloader.dataset = dict(type="RepeatDataset", times=round(total / count), dataset=dataset)
    cfg.dump(str(work / "recipe.py"))
    start = time.monotonic()
    with open(work / "train.log", "w") as log:
        command = [sys.executable, str(TRAIN), str(work / "recipe.py"), "--work-dir", str(work)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TRAIN.parents[1]), *sys.path[1:]])}
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    if code:
        raise ValueError(f"training {mode} on {count} images ended with exit code {code}; see {work / 'train.log'}")
    row = {"finetune": mode, "images": count, "seconds": round(time.monotonic() - start), **last_score(work)}
    write_json(result, row)
    return row


def last_score(work: Path) -> dict[str, Any]:
    """Name and value, in percent, of the last validation."""
    for log in sorted(work.glob("*/vis_data/scalars.json"), reverse=True):
        for line in reversed(log.read_text().splitlines()):
            for metric, factor in METRICS.items():
                if metric in (values := json.loads(line)):
                    return {"metric": metric, "score": round(values[metric] * factor, 2)}
    raise ValueError(f"{work} holds no validation with one of {', '.join(METRICS)}; give the config val_evaluator")


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    """The runs for a person."""
    table = Table(title=title)
    for column in ("recipe", "images", "minutes", rows[0]["metric"]):
        table.add_column(column, justify="left" if column == "recipe" else "right")
    for row in rows:
        table.add_row(row["finetune"], str(row["images"]), f"{row['seconds'] / 60:.1f}", f"{row['score']:.2f}")
    return table


def markdown_of(rows: list[dict[str, Any]]) -> str:
    """The same for a document."""
    lines = [f"| recipe | images | minutes | {rows[0]['metric']} |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['finetune']} | {row['images']} | {row['seconds'] / 60:.1f} | {row['score']:.2f} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Score over time: one line per recipe, one point per number of images."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for mode in dict.fromkeys(row["finetune"] for row in rows):
        points = sorted((row for row in rows if row["finetune"] == mode), key=lambda row: row["images"])
        minutes, scores = [p["seconds"] / 60 for p in points], [p["score"] for p in points]
        axes.plot(minutes, scores, "o-", label=mode, linewidth=1.5, markersize=7)
        for point, x, y in zip(points, minutes, scores, strict=True):
            axes.annotate(f"{point['images']} images", (x, y), xytext=(7, -4), textcoords="offset points", fontsize=8)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel(f"{rows[0]['metric']} (percent)")
    axes.set_title(title)
    axes.margins(x=0.15, y=0.12)
    axes.grid(alpha=0.3)
    axes.legend(title="recipe", frameon=False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    plt.close(figure)


if __name__ == "__main__":
    run_cli(main)
