"""Add INT8 for a target to a bundle, calibrated on real images, with a receipt of what it costs.

python tools/quantize.py BUNDLE --target openvino|tensorrt --calib DIR [--eval CONFIG [--tune train|val]] [--max-drop P]
"""

import argparse
from pathlib import Path

from mmengine.config import DictAction
from rich.console import Console
from rich.progress import track

from deploy.cli import run_cli
from deploy.predictor import default_threads
from vitdense.config import load_config
from vitdense.evaluation.split import SPLITS
from vitdense.export.bundle import FIGURE_PREFIX
from vitdense.quant import TARGETS, OpenVINORecipe, QuantizeRequest, TensorRTRecipe, quantize
from vitdense.reports import receipt_table, sensitivity_figure


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Add INT8 for a target to a bundle")
    parser.add_argument("bundle", type=Path, help="folder that tools/export.py wrote")
    parser.add_argument("--target", required=True, choices=TARGETS, help="what the files are for")
    parser.add_argument("--calib", required=True, nargs="+", metavar="DIR", help="folders of calibration images")
    parser.add_argument("--num-images", type=int, default=64, help="calibration images at most (default: 64)")
    parser.add_argument("--eval", metavar="CONFIG", help="score FP32 and INT8 on the test data of this config")
    parser.add_argument(
        "--max-drop",
        type=float,
        default=0.5,
        metavar="POINTS",
        help="most that mIoU, box AP and mask AP may fall, of 100 (default: 0.5)",
    )
    parser.add_argument(
        "--cpu-compat",
        action="store_true",
        help="for a CPU without VNNI (before Cascade Lake and Zen 4), where 8-bit products saturate: 7-bit weights",
    )
    parser.add_argument(
        "--tune",
        choices=SPLITS,
        help="pin layers to float until --max-drop is met on labelled images of this split of the --eval config",
    )
    parser.add_argument("--tune-images", type=int, metavar="N", help="labelled images to tune on at most (default: 64)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the --eval config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if not 0 <= args.max_drop <= 100:
        raise ValueError(f"--max-drop {args.max_drop} must lie in 0..100 (points of 100)")
    if args.cpu_compat and args.target != "openvino":
        raise ValueError("--cpu-compat is for --target openvino")
    if args.cfg_options and not args.eval:
        raise ValueError("--cfg-options overrides the config of --eval, which is not given")
    if args.tune and not args.eval:
        raise ValueError("--tune needs --eval CONFIG: labelled images to tune on, and others to verify it on")
    if args.tune_images is not None and not args.tune:
        raise ValueError("--tune-images is for --tune, which is not given")
    cfg = load_config(args.eval, args.cfg_options) if args.eval else None
    request = QuantizeRequest(
        args.bundle,
        args.calib,
        args.num_images,
        args.max_drop,
        args.threads,
        OpenVINORecipe(cpu_compat=args.cpu_compat) if args.target == "openvino" else TensorRTRecipe(),
        args.tune,
        64 if args.tune_images is None else args.tune_images,
    )
    console = Console()
    receipt = quantize(
        request, cfg, say=console.print, progress=lambda items, label: track(items, label, console=console)
    )
    console.print(receipt_table(receipt, args.target))
    latency = receipt["targets"][args.target]["latency"]
    if latency and latency["speedup"] < 1:
        console.print(
            f"INT8 is slower than FP32 on this CPU ({latency['speedup']:.2f}x), as on others without 8-bit dot "
            "products (VNNI); deploy.predict takes it all the same unless told --precision fp32"
        )
    written = [file.name for file in TARGETS[args.target].files]
    figure = args.bundle / f"{FIGURE_PREFIX}{args.target}.png"
    figure.unlink(missing_ok=True)  # that of an earlier file
    if args.tune:
        sensitivity_figure(receipt, args.target, figure)
        written.append(figure.name)
    console.print(f"{', '.join(written)} and the receipt are in {args.bundle}")


if __name__ == "__main__":
    run_cli(main)
