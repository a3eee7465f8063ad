"""Predict images with a bundle: ``python -m deploy.predict BUNDLE IMAGE… --out DIR``."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.cli import EXIT_USAGE, run_cli
from deploy.detections import Detections
from deploy.draw import add_legend, draw_detections, overlay
from deploy.files import refuse_overwriting, write_json, write_npz
from deploy.io import list_images, read_image, write_image
from deploy.manifest import PRECISIONS, Manifest
from deploy.predictor import Prediction, Predictor
from deploy.runtimes import DEFAULT_RUNTIME, RUNTIMES, default_runtime
from deploy.specs import check_share
from deploy.table import format_table

REPORT_NAME = "predictions.json"


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(prog="python -m deploy.predict", description="Predict images with a bundle.")
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="image file, or a folder of images")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results; made if need be")
    parser.add_argument("--runtime", choices=RUNTIMES, help=f"default: {DEFAULT_RUNTIME}")
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="default: int8 if there is one for the runtime, or fp32"
    )
    parser.add_argument("--threads", type=int, help="CPU threads; default: all this process may use")
    parser.add_argument("--score", type=float, help="lowest score of a detector's objects; default: the manifest's")
    return parser.parse_args(argv)


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """Give each path a stem of its own for its results: `a`, then `a-2`, `a-3` where stems repeat.

    Upper and lower case count as equal, since some file systems hold them to be.
    """
    used: set[str] = set()
    stems = []
    for path in paths:
        stem, number = path.stem, 1
        while stem.casefold() in used:
            number += 1
            stem = f"{path.stem}-{number}"
        used.add(stem.casefold())
        stems.append(stem)
    return stems


def class_shares(prediction: Prediction, manifest: Manifest) -> dict[str, float]:
    """Return the share of pixels, 0 to 1, of every class that is there, the largest first; empty for features."""
    if prediction.class_map is None:
        return {}
    counts = np.bincount(prediction.class_map.ravel(), minlength=len(manifest.classes))
    order = [int(index) for index in np.argsort(-counts, kind="stable") if counts[index]]
    return {manifest.classes[index]: float(counts[index] / counts.sum()) for index in order}


def save_results(
    image: npt.NDArray[np.uint8], prediction: Prediction, manifest: Manifest, out: Path, stem: str
) -> dict[str, str]:
    """Write the files of one image.

    Args:
        image: (H, W, 3), BGR.
        prediction: Of this image.
        manifest: The bundle's.
        out: An existing folder.
        stem: What the file names start with.

    Returns:
        What each file is to its name: 'overlay' and 'mask' of a segmenter, 'overlay' of a detector and 'instances' (the
        number of each pixel's object in the report, from 1 on) if it makes masks, else 'features'.
    """
    if prediction.detections is not None:
        names = {"overlay": f"{stem}_overlay.png"}
        picture = draw_detections(image, prediction.detections, manifest.classes, manifest.palette)
        write_image(out / names["overlay"], picture)
        if prediction.detections.masks is not None:
            names["instances"] = f"{stem}_instances.png"
            size = prediction.geometry.original_size
            write_image(out / names["instances"], instance_map(prediction.detections.masks, size))
        return names
    if prediction.class_map is None:
        name = f"{stem}_features.npz"
        write_npz(out / name, prediction.outputs)
        return {"features": name}
    counts = np.bincount(prediction.class_map.ravel())
    present = [int(index) for index in np.argsort(-counts, kind="stable") if counts[index]]
    picture = overlay(image, prediction.class_map, manifest.palette)
    names = {"overlay": f"{stem}_overlay.png", "mask": f"{stem}_mask.png"}
    write_image(out / names["overlay"], add_legend(picture, manifest.classes, manifest.palette, present))
    write_image(out / names["mask"], prediction.class_map)
    return names


def instance_map(
    masks: Sequence[npt.NDArray[np.bool_]] | npt.NDArray[np.bool_], size: tuple[int, int]
) -> npt.NDArray[np.uint16]:
    """Number the pixels (H, W) by object, from 1 on, the surest on top; 0 is none."""
    numbers = np.zeros(size, dtype=np.uint16)
    for index in reversed(range(len(masks))):
        numbers[masks[index]] = index + 1
    return numbers


def object_records(detections: Detections, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return class, score and box (left, top, right, bottom in pixels) of every object, ready for JSON."""
    return [
        {"class": classes[label], "score": round(float(score), 4), "box": [round(float(side), 2) for side in box]}
        for box, score, label in zip(detections.boxes, detections.scores, detections.labels, strict=True)
    ]


def predict_images(predictor: Predictor, paths: Sequence[Path], out: Path) -> tuple[list[Any], list[Any]]:
    """Predict and save image after image; one that cannot be read is reported and the others go on.

    Returns:
        A record for each image done and one for each that failed, ready for JSON.
    """
    done: list[Any] = []
    failed: list[Any] = []
    for path, stem in zip(paths, unique_stems(paths), strict=True):
        try:
            image = read_image(path)
        except (ValueError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed.append({"image": os.fspath(path), "error": str(error)})
            continue
        prediction = predictor.predict(image)
        out.mkdir(parents=True, exist_ok=True)
        files = save_results(image, prediction, predictor.manifest, out, stem)
        record: dict[str, Any] = {"image": os.fspath(path), "size": list(image.shape[:2]), "files": files}
        if prediction.class_map is not None:
            record["shares"] = class_shares(prediction, predictor.manifest)
        if prediction.detections is not None:
            record["objects"] = object_records(prediction.detections, predictor.manifest.classes)
            record["exact"] = prediction.detections.exact
            if not prediction.detections.exact:
                print(f"warning: {path}: more boxes overlap here than the graph resolves", file=sys.stderr)
        done.append({**record, "timings_ms": {k: round(v, 3) for k, v in prediction.timings_ms.items()}})
    return done, failed


def model_line(model: Mapping[str, Any]) -> str:
    """Say in one line what ran: the record is that of `Predictor.describe`."""
    return (
        f"{model['file']} ({model['precision']}) on {model['runtime']} {model['version']}, {model['threads']} threads"
    )


def result_table(done: Sequence[Any]) -> str:
    """Format the records of `predict_images` as a table."""
    rows = []
    for record in done:
        # A share that would be printed as 0 % is left to the JSON.
        top = [(name, share) for name, share in record.get("shares", {}).items() if share >= 0.005][:3]
        rows.append(
            [
                Path(record["image"]).name,
                "x".join(map(str, record["size"])),
                f"{record['timings_ms']['infer']:.1f}",
                f"{sum(record['timings_ms'].values()):.1f}",
                ", ".join(f"{name} {share:.0%}" for name, share in top)
                or counted(record.get("objects"))
                or next(iter(record["files"].values())),
            ]
        )
    return format_table(["image", "size (HxW)", "model ms", "total ms", "result"], rows, right={2, 3})


def counted(objects: Sequence[Any] | None) -> str:
    """Say how many objects of each class there are, the most frequent first; nothing where none were looked for."""
    if objects is None:
        return ""
    counts = Counter(item["class"] for item in objects).most_common(4)
    return ", ".join(f"{number} {name}" for name, number in counts) or "no objects"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0, or 2 if an image could not be read.
    """
    args = parse_args(argv)
    out = Path(args.out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; expected a folder")
    paths = list_images(args.images)
    endings = ("overlay.png", "mask.png", "instances.png", "features.npz")
    refuse_overwriting((out / f"{stem}_{ending}" for stem in unique_stems(paths) for ending in endings), paths)
    check_share("--score", args.score)
    predictor = Predictor(
        args.bundle,
        runtime=args.runtime or default_runtime(args.bundle),
        precision=args.precision,
        threads=args.threads,
        score=args.score,
    )
    done, failed = predict_images(predictor, paths, out)
    if done:
        report = {
            "bundle": args.bundle,
            "task": predictor.manifest.task,
            "model": predictor.describe(),
            "images": done,
            "failed": failed,
        }
        write_json(out / REPORT_NAME, report)
        print(model_line(report["model"]))
        print(result_table(done))
        print(f"{len(done)} of {len(paths)} images done; results and {REPORT_NAME} are in {out}")
    if failed:
        print(f"error: {len(failed)} of {len(paths)} images could not be read, {len(done)} succeeded", file=sys.stderr)
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    run_cli(main)
