"""Draw the data set of the quick start: coloured shapes with index masks.

python tools/generate_data.py data/shapes [--num-train N] [--num-val N] [--seed S]
"""

import argparse
from pathlib import Path

from deploy.cli import run_cli
from vitdense.datasets.generated import CLASSES, write_shapes


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the data set of the quick start")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--num-train", type=int, default=48, help="training images (default: 48)")
    parser.add_argument("--num-val", type=int, default=12, help="validation images (default: 12)")
    parser.add_argument("--size", type=int, default=224, help="side of an image in pixels (default: 224)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ValueError(f"{args.out} exists and is not an empty folder; choose another")
    write_shapes(args.out, args.num_train, args.num_val, args.size, args.seed)
    print(f"{args.num_train} + {args.num_val} images of {', '.join(CLASSES)} written to {args.out}")


if __name__ == "__main__":
    run_cli(main)
