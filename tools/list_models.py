"""Write the table of all configs: what each is for, its size and cost, and its score as its docstring states it.

python tools/list_models.py --out docs/models.md
"""

import argparse
import re
from pathlib import Path

from rich.progress import track

from deploy.cli import run_cli
from deploy.files import atomic_write
from vitdense.analysis import part_costs
from vitdense.config import load_config
from vitdense.engine.build import build_shapes, image_shape

ROOT = Path(__file__).resolve().parents[1]
HEADER = """# Models

Every config of this project, written by `python tools/list_models.py --out docs/models.md`. What a score is, published
or measured here, and by which command, stands in each config's docstring; nothing is claimed that was not run.

Costs are for one image of the given size in pixels: GFLOPs of products and convolutions (a multiplication and an
addition are two) of the backbone and, after the plus, of all behind it; parameters in millions. Where the test pipeline
only bounds the size, the largest is counted. Two-stage heads are counted for all their proposals and 100 masks; the
transformer of a DETR and the teacher of a distillation are not counted.
"""
GROUPS = {
    "vitdet_coco.py": "ViTDet",
    "vitdet": "Detection and instance segmentation",
    "vitseg": "Semantic segmentation",
    "edge": "Edge devices",
    "distill": "Distillation",
    "comparison": "Other backbones, for comparison",
    "fixtures": "Small models for tests",
    "quickstart": "Quick start",
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write the table of all configs")
    parser.add_argument("--out", required=True, type=Path, help="Markdown file to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    text = HEADER
    paths = sorted(path for path in (ROOT / "configs").rglob("*.py") if "_base_" not in path.parts)
    rows = {path: row_of(path) for path in track(paths, description="configs")}
    for group, title in GROUPS.items():
        members = [path for path in paths if path.relative_to(ROOT / "configs").parts[0] == group]
        text += f"\n## {title}\n\n| config | what | size | GFLOPs | parameters | score |\n|---|---|---|---|---|---|\n"
        text += "".join(rows[path] for path in members)
    with atomic_write(args.out) as temporary:
        temporary.write_text(text)
    print(f"{len(paths)} configs are listed in {args.out}")


def row_of(path: Path) -> str:
    """The config's line of the table."""
    name = path.relative_to(ROOT)
    docstring = path.read_text().split('"""')[1]
    cfg = load_config(path)
    shape = image_shape(cfg)
    proposals = cfg.model.get("test_cfg", {}).get("rpn", {}).get("max_per_img", 0)
    model = build_shapes(cfg)
    costs = part_costs(model, shape, proposals)
    flops = {part: cost.flops / 1e9 for part, cost in costs.items()}
    behind = sum(flops.values()) - flops["backbone"]
    cells = (
        f"[{path.stem}](../{name})",
        " ".join(docstring.split("\n\n")[0].split()).rstrip("."),
        f"{shape[0]} x {shape[1]}",
        f"{flops['backbone']:.1f} + {behind:.1f}" + (" + transformer" if hasattr(model, "decoder") else ""),
        f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.1f}",
        score_of(docstring),
    )
    return "| " + " | ".join(cells) + " |\n"


def score_of(docstring: str) -> str:
    """The sentences of a docstring that say what was scored, published or measured.

    Raises:
        ValueError: There is none.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    sentences = [part for text in paragraphs for part in re.split(r"(?<=[.)])\s+(?=[A-Z])", text)]
    found = [sentence for sentence in sentences if re.match(r"Score|Not measured|Measured here", sentence)]
    if not found:
        raise ValueError(f"this docstring of a config states no score: {paragraphs[0][:80]}")
    return " ".join(found).removeprefix("Score: ").rstrip(".")


if __name__ == "__main__":
    run_cli(main)
