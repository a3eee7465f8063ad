"""Train one config in several ways and on several numbers of images, and draw what each is worth.

python tools/compare_recipes.py configs/vitseg/vits-dinov2_fcn_camvid.py --finetune linear lora full --images 50 all \
    --out outputs/camvid_recipes

Every run takes the steps of the config's schedule, also on fewer images. A run that is done is not repeated: started
again after an interruption, the command goes on with those that are left.
"""

import argparse
import sys
from pathlib import Path

from mmengine.config import DictAction
from rich.console import Console

from deploy.cli import run_cli
from deploy.files import atomic_write, write_json
from vitdense.config import load_config
from vitdense.datasets import check_dataset_files
from vitdense.engine.compare import Result, plan, train
from vitdense.engine.finetune import FINETUNE
from vitdense.reports import recipe_figure, recipe_table

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
    if wrong := [text for text in args.images if text != "all" and not text.isdecimal()]:
        raise ValueError(f"--images {wrong[0]}: expected 'all' or a number")
    configs = {mode: load_config(args.config, args.cfg_options) for mode in args.finetune}
    check_dataset_files(configs[args.finetune[0]], ("train", "val"))
    recipes = plan(configs, [None if text == "all" else int(text) for text in args.images])
    args.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    results: list[Result] = []
    for number, recipe in enumerate(recipes, 1):
        console.print(f"{number} of {len(recipes)}: {recipe.finetune} on {recipe.images} images")
        results.append(train(recipe, args.out, [sys.executable, str(TRAIN)]))
    title = Path(args.config).stem
    record = {"config": str(args.config), "cfg_options": args.cfg_options, "runs": [r.to_dict() for r in results]}
    write_json(args.out / "recipes.json", record)
    console.print(recipe_table(results, title))
    with atomic_write(args.out / "recipes.md") as temporary:
        temporary.write_text(markdown_of(results))
    recipe_figure(results, title, args.out / "recipes.png")
    console.print(f"Written: {args.out}/recipes.json, recipes.md and recipes.png")


def markdown_of(results: list[Result]) -> str:
    """The table for a document."""
    lines = [f"| recipe | images | minutes | {results[0].metric} |", "|---|---|---|---|"]
    lines += [f"| {r.finetune} | {r.images} | {r.seconds / 60:.1f} | {r.score:.2f} |" for r in results]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_cli(main)
