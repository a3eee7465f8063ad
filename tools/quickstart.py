"""The whole road on real weights and photos, in minutes: train a little, export, quantize, look.

python tools/quickstart.py --out outputs/demo        (or: make demo)

Every step is one of this project's commands, printed before it runs.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np

from deploy.cli import run_cli
from deploy.io import read_image, write_image

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/vitseg/vits-dinov2_fcn_everyday.py"
WEIGHTS = "weights/vits-dinov2_fcn_everyday.safetensors"
RECEIPT = "weights/vits-dinov2_fcn_everyday.receipt.json"
SHAPE = ("448", "448")
# Photos that packages ship (their licences: docs/first-model.md). Shown ones and calibrated ones are different photos.
SHOWN = (
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/motorcycle_left.png"),
)
CALIBRATION = (
    ("sklearn", "datasets/images/flower.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("skimage", "data/rocket.jpg"),
    ("skimage", "data/camera.png"),
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
)
CROPS_PER_PHOTO = 8
MARKER = ".vitdense-demo"
FOLDERS = ("photos", "calibration", "data", "training", "bundle", "pictures")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a little, export, quantize, look")
    parser.add_argument("--out", type=Path, default=Path("outputs/demo"), help="folder for everything it makes")
    args = parser.parse_args()
    out = args.out.resolve()
    start = time.monotonic()
    prepare(out)
    gather_photos(out)
    step("1/4 Training: a segmenter on drawn shapes, DINOv2 frozen (a taste of the training half)")
    command("tools/generate_data.py", f"{out}/data/shapes")
    command(
        "tools/train.py",
        "configs/quickstart/vits-dinov2_fcn_shapes.py",
        "--work-dir",
        f"{out}/training",
        "--cfg-options",
        f"train_dataloader.dataset.data_root={out}/data/shapes",
        f"val_dataloader.dataset.data_root={out}/data/shapes",
    )
    step("2/4 Export: the shipped 12-class segmenter to static ONNX, compared with torch on the photos")
    command(
        "tools/export.py", CONFIG, WEIGHTS, "--out", f"{out}/bundle", "--shape", *SHAPE, "--images", f"{out}/photos"
    )
    step(f"3/4 INT8: calibration on crops of {len(CALIBRATION)} packaged photos that are not shown")
    command("tools/quantize.py", f"{out}/bundle", "--target", "openvino", "--calib", f"{out}/calibration")
    step("4/4 Look: FP32 beside INT8")
    command("tools/demo.py", f"{out}/bundle", f"{out}/photos", "--out", f"{out}/pictures", "--receipt", RECEIPT)
    print(f"\nDone in {time.monotonic() - start:.0f} s. Everything lies in {out}: look at {out}/pictures")


def prepare(out: Path) -> None:
    """Makes the folder, or clears what an earlier demo made in it and nothing else."""
    marker = out / MARKER
    if out.exists() and any(out.iterdir()) and not marker.is_file():
        raise ValueError(f"{out} holds something else than an earlier demo; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    marker.write_text("Made by tools/quickstart.py, which clears its folders here when it runs again.\n")
    for folder in FOLDERS:
        shutil.rmtree(out / folder, ignore_errors=True)


def gather_photos(out: Path) -> None:
    """Copies the shown photos, and cuts the crops for calibration."""
    for folder in ("photos", "calibration"):
        (out / folder).mkdir(parents=True)
    for package, name in SHOWN:
        path = packaged(package, name)
        write_image(out / "photos" / f"{path.stem}.png", read_image(path))
    for package, name in CALIBRATION:
        path = packaged(package, name)
        image = read_image(path)
        for index in range(CROPS_PER_PHOTO):
            write_image(out / "calibration" / f"{path.stem}_{index}.png", crop(image, index))


def crop(image: np.ndarray, index: int) -> np.ndarray:
    """One of eight fixed views: the whole photo, five crops of two thirds, and two more that are mirrored."""
    height, width = image.shape[:2]
    if index == 0:
        return image
    part_h, part_w = 2 * height // 3, 2 * width // 3
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5), (0, 0.5), (0.5, 0)]
    row, column = places[index - 1]
    top, left = int(row * (height - part_h)), int(column * (width - part_w))
    part = image[top : top + part_h, left : left + part_w]
    return cv2.flip(part, 1) if index > 5 else part


def packaged(package: str, name: str) -> Path:
    spec = find_spec(package)
    path = Path(spec.submodule_search_locations[0]) / name if spec and spec.submodule_search_locations else None
    if path is None or not path.is_file():
        raise ImportError(f"the photo {name} of the package {package} is missing: pip install 'vitdense[demo]'")
    return path


def step(title: str) -> None:
    print(f"\n=== {title}", flush=True)


def command(script: str, *arguments: str) -> None:
    line = ["python", script, *arguments]
    print("$ " + shlex.join(line), flush=True)
    code = subprocess.run([sys.executable, *line[1:]], cwd=ROOT, check=False).returncode
    if code:
        raise ValueError(f"{script} ended with exit code {code}; its message stands above")


if __name__ == "__main__":
    run_cli(main)
