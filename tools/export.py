"""Export a trained model as a bundle: a static ONNX file that was checked against the model itself on real images.

python tools/export.py CONFIG CHECKPOINT --out BUNDLE --shape H W [--task features] [--images DIR]
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import DictAction
from rich.console import Console
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import sha256_of
from deploy.predictor import default_threads
from deploy.runtimes.base import check_threads
from vitdense.checkpoints import Trained, load_trained, use_safe_loader
from vitdense.config import load_config
from vitdense.engine.build import build_model, dataset_metainfo
from vitdense.export import ExportRequest, Parity, export_bundle, parity_images
from vitdense.export.bundle import check_destination
from vitdense.export.wrappers import TASKS


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Export a trained model as a bundle")
    parser.add_argument("config", help="config file")
    parser.add_argument("checkpoint", help="checkpoint (.pth), or a delta on pre-trained weights (.safetensors)")
    parser.add_argument("--out", required=True, type=Path, metavar="BUNDLE", help="folder to write")
    parser.add_argument("--shape", required=True, type=int, nargs=2, metavar=("H", "W"), help="input size in pixels")
    parser.add_argument(
        "--task",
        default="auto",
        choices=TASKS,
        help="features: backbone and pyramid alone (default: what the model is for)",
    )
    parser.add_argument(
        "--format",
        nargs="+",
        default=["onnx"],
        choices=("onnx", "pt2"),
        help="pt2: exported programs of PyTorch, FP32 and FP16, beside the ONNX file, which is always written",
    )
    parser.add_argument("--batch", type=int, default=1, help="images per run (default: 1)")
    parser.add_argument(
        "--nms-rounds", type=int, help="of a detector's suppression; more resolve longer chains of boxes"
    )
    parser.add_argument("--nms-candidates", type=int, help="boxes that reach a detector's suppression")
    parser.add_argument("--images", help="folder of real images for the parity check (default: the config's test data)")
    parser.add_argument("--num-images", type=int, default=8, help="how many of them (default: 8)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing bundle")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    for name, value in (("--shape", min(args.shape)), ("--batch", args.batch), ("--num-images", args.num_images)):
        if value < 1:
            raise ValueError(f"{name} must be positive, got {value}")
    check_threads(args.threads)
    use_safe_loader()
    check_destination(args.out, args.overwrite)
    cfg = load_config(args.config, args.cfg_options)
    model = build_model(cfg)
    trained = load_trained(model, args.checkpoint)
    check_classes(trained, dataset_metainfo(cfg).get("classes"))
    images = parity_images(cfg, args.images, args.num_images)
    source = {
        "config": os.path.basename(args.config),
        "config_sha256": sha256_of(args.config),
        "cfg_options": repr(args.cfg_options) if args.cfg_options else None,
        "checkpoint": os.path.basename(args.checkpoint),
        "checkpoint_sha256": sha256_of(args.checkpoint),
        "base": trained.base,
        "base_sha256": trained.base_sha256,
    }
    console = Console()
    nms = {"rounds": args.nms_rounds, "candidates": args.nms_candidates}
    if any(nms.values()) and hasattr(model, "decode_head"):
        raise ValueError("--nms-rounds and --nms-candidates are for detectors, this model is a segmenter")
    request = ExportRequest(
        args.out,
        tuple(args.shape),
        args.task,
        images,
        source,
        args.threads,
        args.batch,
        args.overwrite,
        {name: value for name, value in nms.items() if value is not None},
        "pt2" in args.format,
    )
    with console.status(f"Exporting at {args.shape[0]} x {args.shape[1]} and comparing on {len(images)} images"):
        manifest, parities = export_bundle(model, cfg, request)
    console.print(parity_table(parities))
    for output in manifest.outputs:
        stride = f", stride {output.stride:g}" if output.kind in ("logits", "feature") else ""
        console.print(f"output {output.name}: {list(output.shape)}{stride}")
    console.print(f"Bundle written to {args.out}")


def check_classes(trained: Trained, classes: Sequence[str] | None) -> None:
    """Raises ValueError if the weights were trained for other classes, or for these in another order."""
    if trained.classes is not None and classes is not None and trained.classes != tuple(classes):
        raise ValueError(
            f"the weights were trained for the classes {list(trained.classes)}, the config's data set names "
            f"{list(classes)}: every name in the manifest would be wrong"
        )


def parity_table(parities: list[Parity]) -> Table:
    if parities and parities[0].detections is not None:
        return detection_table(parities)
    table = Table(title="Exported file against eager torch")
    for column in ("runtime", "images", "output", "relative error", "equal argmax"):
        table.add_column(column)
    for parity in parities:
        for name, error in parity.relative_error.items():
            agreement = "" if parity.argmax_agreement is None else f"{parity.argmax_agreement:.3%}"
            table.add_row(parity.runtime, str(parity.images), name, f"{error:.1e}", agreement)
    return table


def detection_table(parities: list[Parity]) -> Table:
    table = Table(title="Exported file against MMDetection's prediction")
    for column in ("runtime", "images", "objects", "of MMDetection", "matched", "lowest mask IoU"):
        table.add_column(column, justify="left" if column == "runtime" else "right")
    for parity in parities:
        assert parity.detections is not None
        found = parity.detections
        masks = "" if found.lowest_mask_iou is None else f"{found.lowest_mask_iou:.4f}"
        counts = (found.exported, found.eager, found.matched)
        table.add_row(parity.runtime, str(parity.images), *map(str, counts), masks)
    return table


if __name__ == "__main__":
    run_cli(main)
