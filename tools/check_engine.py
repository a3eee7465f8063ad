"""Try whether TensorRT builds the files of a bundle that are meant for it, on a machine without a GPU.

python tools/check_engine.py BUNDLE [--capability sm86]
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.manifest import load_manifest
from deploy.receipt import RECEIPT_NAME, read_receipt
from vitdense.export.engine_check import CAPABILITIES, check_engine


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try whether TensorRT builds a bundle's files")
    parser.add_argument("bundle", type=Path, help="folder that tools/quantize.py --target tensorrt wrote to")
    parser.add_argument("--capability", default="sm86", choices=CAPABILITIES, help="GPU to build for (default: sm86)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    manifest = load_manifest(args.bundle)
    receipt = read_receipt(args.bundle / RECEIPT_NAME)
    # A weakly typed file leaves precisions to the builder of the device, which is not here.
    files = {name: spec for name, spec in manifest.model_files.items() if spec.target == "tensorrt"}
    if not files:
        raise ValueError(f"{args.bundle} has no file for TensorRT; make them with tools/quantize.py --target tensorrt")
    console = Console()
    table = Table(title=f"Engines for {args.capability}, built without a GPU and not kept")
    for column in ("file", "engine, MB", "seconds"):
        table.add_column(column, justify="left" if column == "file" else "right")
    checks = []
    for name, spec in files.items():
        manifest.verify(args.bundle, name)
        with console.status(f"Building {name}"):
            check = check_engine(args.bundle / name, spec.sha256, spec.precision, args.capability)
        checks.append(check.to_dict())
        table.add_row(name, f"{check.engine_bytes / 1e6:.1f}", f"{check.seconds:.1f}")
    receipt["targets"].setdefault("tensorrt", {})["engine_checks"] = checks
    write_json(args.bundle / RECEIPT_NAME, receipt)
    console.print(table)
    console.print(
        f"Written to the receipt. {checks[0]['built_with']}: the files parse and every layer builds; no more."
    )


if __name__ == "__main__":
    run_cli(main)
