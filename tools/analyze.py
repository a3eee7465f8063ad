"""Look at the tokens of a ViT on one image: attention, rollout, norms, positions and costs, as one picture and a JSON.

python tools/analyze.py CONFIG IMAGE --out DIR [--checkpoint CHECKPOINT | --pretrained FILE [--source SOURCE]]
                        [--shape H W] [--place ROW COLUMN]
"""

import argparse
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import DictAction
from rich.console import Console
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.io import read_image
from vitdense.analysis import (
    TokenRecord,
    block_costs,
    find_outliers,
    most_attended,
    position_similarity,
    record_tokens,
)
from vitdense.analysis.cost import BlockCost
from vitdense.analysis.sheet import CAUTION, draw_sheet
from vitdense.checkpoints import load_pretrained, load_trained, use_safe_loader
from vitdense.config import load_config
from vitdense.engine.build import build_model, image_shape
from vitdense.models import ViT

MAX_TOKENS = 5000  # heads times the square of it are stored for every block


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Look at the tokens of a ViT on one image")
    parser.add_argument("config", help="config of a detector or segmenter with a vitdense.ViT")
    parser.add_argument("image", help="image file")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for tokens.png and tokens.json")
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--checkpoint", help="weights of the whole model, trained with CONFIG")
    weights.add_argument("--pretrained", help="weights of the backbone (default: those of its init_cfg)")
    parser.add_argument("--source", default="auto", help="of --pretrained, see docs/checkpoints.md (default: auto)")
    parser.add_argument(
        "--shape", type=int, nargs=2, metavar=("H", "W"), help="default: that of the config's test images"
    )
    parser.add_argument("--place", type=int, nargs=2, metavar=("ROW", "COLUMN"), help="patch (default: the middle)")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    use_safe_loader()
    cfg = load_config(args.config, args.cfg_options)
    pixels = read_image(args.image)
    args.shape = args.shape or image_shape(cfg)
    if min(args.shape) < 1:
        raise ValueError(f"--shape must be positive, got {args.shape}")
    model = build_model(cfg)
    backbone = getattr(model, "backbone", None)
    if not isinstance(backbone, ViT):
        raise ValueError(f"{args.config}: the model's backbone is {type(backbone).__name__}, expected a vitdense.ViT")
    grid = backbone.layout(tuple(-(-side // backbone.patch_size) for side in args.shape)).grid
    place = tuple(args.place or (grid[0] // 2, grid[1] // 2))
    if not all(0 <= index < side for index, side in zip(place, grid, strict=True)):
        raise ValueError(f"--place {place[0]} {place[1]} lies outside the grid of {grid[0]} x {grid[1]} patches")
    if grid[0] * grid[1] > MAX_TOKENS:
        raise ValueError(f"--shape gives {grid[0] * grid[1]} patches; attention of at most {MAX_TOKENS} is stored")
    weights = load_weights(args, model, backbone)
    image = cv2.resize(pixels, (args.shape[1], args.shape[0]), interpolation=cv2.INTER_AREA)
    record = record_tokens(backbone, normalised(image, model))
    costs = block_costs(backbone, tuple(args.shape))
    similarity = position_similarity(backbone, grid, place)
    args.out.mkdir(parents=True, exist_ok=True)
    size = f"{args.shape[0]} x {args.shape[1]}"
    title = f"{Path(args.config).stem}, weights {Path(weights).name}, on {Path(args.image).name}, {size}"
    title = title.replace("$", r"\$")  # matplotlib reads mathematics between two
    rgb = np.ascontiguousarray(image[..., ::-1])
    draw_sheet(args.out / "tokens.png", rgb, record, costs, place, similarity, title)
    write_json(args.out / "tokens.json", summary(args, weights, record, costs))
    console = Console(markup=False, highlight=False)
    console.print(block_table(record, costs))
    console.print(CAUTION.replace("\n", " "), style="dim")
    console.print(f"tokens.png and tokens.json are in {args.out}")


def load_weights(args: argparse.Namespace, model: torch.nn.Module, backbone: ViT) -> str:
    """Loads what the command names, else what the config starts from; returns where it came from."""
    if args.checkpoint:
        load_trained(model, args.checkpoint)
        return str(args.checkpoint)
    origin, source = args.pretrained, args.source
    if origin is None:
        entries = backbone.init_cfg if isinstance(backbone.init_cfg, list) else [backbone.init_cfg or {}]
        entry = next((item for item in entries if item.get("type") == "vitdense.Pretrained"), None)
        if entry is None:
            raise ValueError(f"{args.config} starts its backbone at random; give weights: --checkpoint or --pretrained")
        origin, source = entry["checkpoint"], entry.get("source", "auto")
    print(load_pretrained(backbone, origin, source))
    return str(origin)


def normalised(image: np.ndarray, model: torch.nn.Module) -> torch.Tensor:
    """The image (H, W, 3), BGR, as the model's preprocessor hands it to the backbone, without its padding."""
    preprocessor = model.data_preprocessor
    if not hasattr(preprocessor, "mean"):
        raise ValueError("the config's data_preprocessor has no mean and std, so its images cannot be normalised")
    tensor = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    if preprocessor._channel_conversion:
        tensor = tensor[:, [2, 1, 0]]
    return (tensor - preprocessor.mean) / preprocessor.std


def outliers_of(record: TokenRecord, block: int) -> list[dict[str, Any]]:
    norms = record.norm_map(block)
    places = find_outliers(record, block).nonzero().tolist()
    return [{"row": row, "column": column, "norm": round(norms[row, column].item(), 2)} for row, column in places]


def most_attended_of(record: TokenRecord, block: int) -> dict[str, Any]:
    token, share = most_attended(record, block)
    if token < record.num_prefix:
        return {"prefix_token": token, "share": round(share, 4)}
    row, column = divmod(token - record.num_prefix, record.grid[1])
    return {"row": row, "column": column, "share": round(share, 4)}


def summary(args: argparse.Namespace, weights: str, record: TokenRecord, costs: list[BlockCost]) -> dict[str, Any]:
    blocks = []
    for i, cost in enumerate(costs):
        norms = record.norm_map(i)
        blocks.append(
            {
                "windowed": cost.windowed,
                "norm_median": round(norms.median().item(), 3),
                "norm_max": round(norms.max().item(), 3),
                "outliers": outliers_of(record, i),
                "most_attended": most_attended_of(record, i),
                "flops": {"projections": cost.projections, "products": cost.products, "mlp": cost.mlp},
                "bytes": {"weights": cost.weight_bytes, "scores_if_stored": cost.score_bytes},
            }
        )
    return {
        "config": args.config,
        "weights": weights,
        "image": args.image,
        "shape": list(args.shape),
        "grid": list(record.grid),
        "prefix_tokens": record.num_prefix,
        "outlier_factor": 3.0,
        "blocks": blocks,
        "does_not_prove": CAUTION.replace("\n", " "),
    }


def most_attended_text(record: TokenRecord, block: int) -> str:
    found = most_attended_of(record, block)
    name = f"token {found['prefix_token']}" if "prefix_token" in found else f"{found['row']},{found['column']}"
    return f"{name}: {found['share']:.1%}"


def block_table(record: TokenRecord, costs: list[BlockCost]) -> Table:
    grid = f"{record.grid[0]} x {record.grid[1]} patches"
    table = Table(title=f"{grid}, {record.num_prefix} prefix tokens; norm: median and longest; costs in GFLOPs")
    for column in ("block", "kind", "norm", "longest", "> 3x", "most attended", "attention", "MLP"):
        table.add_column(column, justify="left" if column == "kind" else "right", no_wrap=True)
    for i, cost in enumerate(costs):
        norms = record.norm_map(i)
        table.add_row(
            str(i),
            "window" if cost.windowed else "global",
            f"{norms.median():.1f}",
            f"{norms.max():.1f}",
            str(int(find_outliers(record, i).sum())),
            most_attended_text(record, i),
            f"{cost.attention / 1e9:.2f}",
            f"{cost.mlp / 1e9:.2f}",
        )
    return table


if __name__ == "__main__":
    run_cli(main)
