"""Show what a bundle sees: FP32 beside INT8 on photos, and a table of what INT8 costs and gains.

python tools/demo.py BUNDLE IMAGE... --out DIR [--receipt RECEIPT.json]
"""

import argparse
from pathlib import Path
from typing import Any

import cv2
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deploy.cli import run_cli
from deploy.draw import add_legend, overlay, side_by_side
from deploy.files import refuse_overwriting, write_json
from deploy.io import list_images, read_image, write_image
from deploy.latency import measure, paired_ratio
from deploy.predict import unique_stems
from deploy.predictor import Predictor, default_threads
from deploy.receipt import RECEIPT_NAME, read_receipt

PANEL_HEIGHT = 480


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Draw FP32 beside INT8 on photos")
    parser.add_argument("bundle", type=Path, help="segmentation bundle with an INT8 file (tools/quantize.py)")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="images, or folders of images")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the pictures")
    parser.add_argument("--receipt", type=Path, help="receipt whose mIoU to quote (default: the bundle's own)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--iterations", type=int, default=15, help="timed runs of each model (default: 15)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    images = list_images(args.images)
    if args.iterations < 1:
        raise ValueError(f"--iterations must be positive, got {args.iterations}")
    pictures = [args.out / f"{stem}.png" for stem in unique_stems(images)]
    refuse_overwriting(pictures, images)
    receipt = read_receipt(args.receipt or args.bundle / RECEIPT_NAME)
    fp32, int8 = (Predictor(args.bundle, precision=precision, threads=args.threads) for precision in ("fp32", "int8"))
    if fp32.manifest.task != "segmentation":
        raise ValueError(f"the demo draws segmentation; this bundle's task is '{fp32.manifest.task}'")
    console = Console()
    args.out.mkdir(parents=True, exist_ok=True)
    equal = total = 0
    for path, picture in track(list(zip(images, pictures, strict=True)), "Drawing", console=console):
        image = read_image(path)
        maps = [predictor.predict(image).class_map for predictor in (fp32, int8)]
        equal, total = equal + int((maps[0] == maps[1]).sum()), total + maps[0].size
        write_image(picture, draw_panels(image, maps, fp32.manifest))
    tensor = fp32.preprocess(read_image(images[0]))[0]
    latencies = measure([fp32.runtime, int8.runtime], tensor, warmup=3, iterations=args.iterations)
    summary = {
        "photos": [path.name for path in images],
        "equal_pixels": equal / total,
        "latency": {
            "fp32": {**latencies[0].to_dict(), **fp32.describe()},
            "int8": {**latencies[1].to_dict(), **int8.describe()},
            "speedup": paired_ratio(latencies[0], latencies[1]),
        },
        "size_bytes": {p.filename: p.manifest.files[p.filename].bytes for p in (fp32, int8)},
        "accuracy_of_receipt": receipt["targets"].get("openvino", {}).get("accuracy"),
    }
    write_json(args.out / "summary.json", summary)
    console.print(summary_table(summary, args.receipt))
    console.print(f"{len(pictures)} pictures and summary.json in {args.out}")


def draw_panels(image: Any, maps: list[Any], manifest: Any) -> Any:
    """The photo, FP32 and INT8 side by side, with one legend of the classes that occur."""
    height = PANEL_HEIGHT
    # A very long or narrow image keeps a panel that can be looked at.
    size = (min(max(round(image.shape[1] * height / image.shape[0]), height // 4), 4 * height), height)
    photo = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    resized = [cv2.resize(found, size, interpolation=cv2.INTER_NEAREST) for found in maps]
    panels = [photo, *(overlay(photo, found, manifest.palette) for found in resized)]
    present = sorted(set(maps[0].ravel().tolist()) | set(maps[1].ravel().tolist()))
    return add_legend(side_by_side(panels, ["photo", "FP32", "INT8"]), manifest.classes, manifest.palette, present)


def summary_table(summary: dict[str, Any], receipt: Path | None) -> Table:
    fp32, int8 = summary["latency"]["fp32"], summary["latency"]["int8"]
    sizes = list(summary["size_bytes"].values())
    table = Table(title=f"FP32 and INT8 on this machine: OpenVINO, {fp32['threads']} threads")
    for column, justify in (("", "left"), ("FP32", "right"), ("INT8", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_row("file, MB", f"{sizes[0] / 1e6:.1f}", f"{sizes[1] / 1e6:.1f}", f"{sizes[0] / sizes[1]:.2f}x smaller")
    speedup = f"{summary['latency']['speedup']:.2f} times as fast, in turn"
    table.add_row("latency p50, ms", f"{fp32['p50_ms']:.0f}", f"{int8['p50_ms']:.0f}", speedup)
    table.add_row("equal pixels", "", f"{summary['equal_pixels']:.2%}", f"on these {len(summary['photos'])} photos")
    accuracy = summary["accuracy_of_receipt"]
    if accuracy:
        where = f"{'shipped receipt' if receipt else 'own receipt'}, {accuracy['fp32']['images']} other images"
        table.add_row("mIoU", f"{accuracy['fp32']['miou']:.1f}", f"{accuracy['int8']['miou']:.1f}", where)
    else:
        table.add_row("mIoU", "not measured", "not measured", "")
    return table


if __name__ == "__main__":
    run_cli(main)
