"""Cut the two subsets that this project's weights were trained and scored on out of COCO 2017.

python tools/dataset_converters/coco_subsets.py data/coco --out data

COCO's layout: train2017/, val2017/ and annotations/, with instances_*.json and for coco_semantic panoptic_*.json beside
the folders panoptic_*/ of PNGs (https://cocodataset.org/#download: images and annotations of 2017). Written are
coco_mini/ (80 + 76 images with their instances) and coco_semantic/ (100 + 100 images with index masks of the panoptic
categories, 0 where nothing is labelled, and their grouping into 12 everyday classes).
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.progress import track

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.io import write_image

HERE = Path(__file__).parent
SUBSETS: dict[str, dict[str, list[int]]] = json.loads((HERE / "coco_subsets.json").read_text())
SPLITS = ("train2017", "val2017")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut this project's two subsets out of COCO 2017")
    parser.add_argument("coco", type=Path, help="folder of COCO 2017")
    parser.add_argument("--out", required=True, type=Path, help="folder that gets the subsets")
    parser.add_argument("--subsets", nargs="+", choices=SUBSETS, default=list(SUBSETS), help="default: both")
    args = parser.parse_args()
    for name in args.subsets:
        if (args.out / name).exists():
            raise ValueError(f"{args.out / name} exists already; choose another --out")
    missing = [path for name in args.subsets for path in files_of(args.coco, name) if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]} is not there ({len(missing)} of the files that the subsets need are missing). Expected is "
            "COCO 2017: train2017/, val2017/, annotations/ (https://cocodataset.org/#download)"
        )
    for name in args.subsets:
        partial = args.out / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        write = write_mini if name == "coco_mini" else write_semantic
        write(args.coco, partial)
        partial.rename(args.out / name)
        print(f"{sum(map(len, SUBSETS[name].values()))} images are in {args.out / name}")


def image_name(number: int) -> str:
    """COCO's name of an image."""
    return f"{number:012d}.jpg"


def annotation_file(coco: Path, name: str, split: str) -> Path:
    """The annotations that a subset is cut from."""
    kind = "instances" if name == "coco_mini" else "panoptic"
    return coco / "annotations" / f"{kind}_{split}.json"


def files_of(coco: Path, name: str) -> list[Path]:
    """What a subset is made of."""
    files = []
    for split, numbers in SUBSETS[name].items():
        files += [annotation_file(coco, name, split), *(coco / split / image_name(number) for number in numbers)]
        if name == "coco_semantic":
            files += [panoptic_mask(coco, split, number) for number in numbers]
    return files


def panoptic_mask(coco: Path, split: str, number: int) -> Path:
    """Where COCO's annotations of panoptic segmentation unpack to."""
    return coco / "annotations" / f"panoptic_{split}" / f"{number:012d}.png"


def write_mini(coco: Path, out: Path) -> None:
    """The chosen images' records and objects of instances_*.json, in the order of the list."""
    for split in SPLITS:
        numbers = SUBSETS["coco_mini"][split]
        content = json.loads(annotation_file(coco, "coco_mini", split).read_text())
        images = {image["id"]: image for image in content["images"]}
        content["images"] = [images[number] for number in numbers]
        content["annotations"] = [item for item in content["annotations"] if item["image_id"] in set(numbers)]
        (out / split).mkdir(parents=True)
        for number in track(numbers, description=f"coco_mini, {split}"):
            shutil.copy(coco / split / image_name(number), out / split)
        (out / "annotations").mkdir(exist_ok=True)
        write_json(out / f"annotations/instances_{split}.json", content)


def write_semantic(coco: Path, out: Path) -> None:
    """Index masks (H, W) of the category of each pixel, from the segments of panoptic_*.json."""
    for split in SPLITS:
        content = json.loads(annotation_file(coco, "coco_semantic", split).read_text())
        segments = {item["image_id"]: item["segments_info"] for item in content["annotations"]}
        for kind in ("images", "masks"):
            (out / kind / split).mkdir(parents=True)
        for number in track(SUBSETS["coco_semantic"][split], description=f"coco_semantic, {split}"):
            shutil.copy(coco / split / image_name(number), out / "images" / split)
            mask = category_mask(panoptic_mask(coco, split, number), segments[number])
            write_image(out / "masks" / split / f"{number:012d}.png", mask)
    shutil.copy(HERE / "everyday.json", out)


def category_mask(path: Path, segments: list[dict[str, Any]]) -> np.ndarray:
    """COCO's panoptic PNG, whose colour is the number of a segment, as category ids (H, W), uint8."""
    colour = cv2.imread(str(path)).astype(np.int64)  # BGR
    ids = colour[..., 2] + 256 * colour[..., 1] + 65536 * colour[..., 0]
    mask = np.zeros(ids.shape, np.uint8)
    for segment in segments:
        mask[ids == segment["id"]] = segment["category_id"]
    return mask


if __name__ == "__main__":
    run_cli(main)
