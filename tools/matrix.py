"""Take the trained models of this repository to every target and write the table of what that cost.

python tools/matrix.py --out docs/matrix.md [--work-dir outputs/matrix] [--models NAME ...]

Every step is the command that a user would run. A bundle that is there already is not made again, so an interrupted run
goes on where it was; a step that fails is in the table, with its reason, and the others go on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.cli import run_cli
from deploy.files import atomic_write, check_folder_of, sha256_of, write_json
from deploy.machine import cpu_model
from deploy.manifest import MANIFEST_NAME, load_manifest
from deploy.predictor import default_threads
from deploy.receipt import RECEIPT_NAME, read_receipt
from vitdense.evaluation import AGREEMENTS, LABELS, MAIN_MEASURES
from vitdense.export.bundle import MODEL_FILE
from vitdense.quant import TARGETS

ROOT = Path(__file__).resolve().parents[1]
HEADER = """# From training to INT8: every task, runtime and precision

Written by `make matrix`, which runs the commands of [the first model](first-model.md) for each trained model of this
repository: export with parity against OpenMMLab's own prediction, INT8 for OpenVINO, INT8 and FP16 for TensorRT, scores
of all files on the same test images. {machine}

- **parity**: objects (or pixels) of the exported FP32 file that are those of MMDetection (or MMSegmentation).
- **agreement**: objects (or pixels) of a file that are those of its FP32 file; two objects are the same with one class,
  an IoU of 0.7, and scores of 0.35 and 0.25 or more. The smaller share of both directions.
- **in INT8**: share of the multiplications. The recipe leaves some in float, and tuning what the score needs.
- **engine**: TensorRT for RTX built the file for SM86 without a GPU. It proves that the file parses and that each layer
  has an implementation of its precision, no more. TensorRT's files are scored with ONNX Runtime, which computes what
  they say.
- **latency** of one image: median on this CPU, FP32 and INT8 in turn. On a Jetson: not measured.
"""
TITLES = "model, input | runtime | precision | score | drop, points | parity or agreement | in INT8 | MB | ms | engine"


@dataclass(frozen=True)
class Entry:
    """A trained model.

    Args:
        name: Of its config and of its weights.
        folder: Of the config, in ``configs/``.
        shape: Height and width of the exported input.
        data: Key of :func:`calibration_images`.
        tune: Split of labelled images to tune on, if there are any that are not scored.
        images: On how many images parity is checked.
    """

    name: str
    folder: str
    shape: tuple[int, int]
    data: str
    tune: str | None = "train"
    images: int = 24


ENTRIES = (
    Entry("vit48_gfl_bccd", "fixtures", (240, 320), "bccd", images=72),
    Entry("vits-dinov2_gfl_bccd", "vitdet", (480, 640), "bccd", images=72),
    Entry("vits-dinov2_faster-rcnn_bccd", "vitdet", (480, 640), "bccd", images=72),
    # Scored on the images that it was trained on: there are no others to tune on.
    Entry("vits_mask-rcnn_coco-mini", "edge", (512, 512), "coco", tune=None, images=64),
    Entry("vits_rtmdet-ins_coco-mini", "edge", (512, 512), "coco", tune=None, images=64),
    Entry("vits-dinov2_fcn_everyday", "vitseg", (448, 448), "coco"),
)


def parse_args() -> argparse.Namespace:
    names = [entry.name for entry in ENTRIES]
    parser = argparse.ArgumentParser(description="Take every trained model to every target and tabulate it")
    parser.add_argument("--out", required=True, type=Path, help="Markdown file to write")
    parser.add_argument("--work-dir", type=Path, default=Path("outputs/matrix"), help="folder for the bundles")
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="NAME", help="default: all")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    check_folder_of("--out", args.out)
    # Commands run in the root of the repository, wherever this one was started.
    data, work_dir = Path(os.environ.get("VITDENSE_DATA", "data")).resolve(), args.work_dir.resolve()
    work_dir.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    failed = 0
    for entry in (entry for entry in ENTRIES if entry.name in args.models):
        bundle = work_dir / entry.name
        failures = {}
        for step, command in steps(entry, bundle, data, args.threads):
            print(f"{entry.name}: {step}", flush=True)
            failure = run(command, work_dir / f"{entry.name}-{step}.log")
            if failure:
                print(f"  {failure}", flush=True)
                failures[step] = failure
        failed += len(failures)
        rows += rows_of(entry, bundle, failures)
    write_json(work_dir / "matrix.json", rows)
    machine = f"Measured on {args.threads} threads of an {cpu_model()}."
    with atomic_write(args.out) as temporary:
        temporary.write_text(HEADER.format(machine=machine) + "\n" + as_markdown(rows))
    print(f"{len(rows)} rows are in {args.out}")
    if failed:
        raise ValueError(f"{failed} steps failed; their reasons are in the table, their output in {work_dir}/*.log")


def calibration_images(key: str, data: Path) -> list[Path]:
    """Images like those of a model's test data, none of them scored on."""
    if key == "bccd":
        names = (data / "bccd/ImageSets/Main/train.txt").read_text().split()
        return [data / f"bccd/JPEGImages/{name}.jpg" for name in names[::4]]
    return [data / "coco_semantic/images/train2017"]


def steps(entry: Entry, bundle: Path, data: Path, threads: int) -> Iterator[tuple[str, list[str]]]:
    """Name and command of each step that is still to be done; asked for one after another."""
    config = f"configs/{entry.folder}/{entry.name}.py"
    weights = f"weights/{entry.name}.safetensors"
    made = (bundle / MANIFEST_NAME).is_file()
    if not made or load_manifest(bundle).source["checkpoint_sha256"] != sha256_of(ROOT / weights):
        shape = [str(side) for side in entry.shape]
        options = ["--out", str(bundle), "--shape", *shape, "--num-images", str(entry.images), "--overwrite"]
        yield "export", ["tools/export.py", config, weights, *options, "--threads", str(threads)]
    if not (bundle / MANIFEST_NAME).is_file():
        return
    images = [str(path) for path in calibration_images(entry.data, data)]
    for target in TARGETS:
        if not (measured(bundle, target) or {}).get("accuracy"):
            options = ["--eval", config, "--threads", str(threads), *(["--tune", entry.tune] if entry.tune else [])]
            yield target, ["tools/quantize.py", str(bundle), "--target", target, "--calib", *images, *options]
    tensorrt = measured(bundle, "tensorrt")
    if tensorrt and not tensorrt.get("engine_checks"):
        yield "engine", ["tools/check_engine.py", str(bundle)]


def run(command: list[str], log: Path) -> str | None:
    """Runs a command, and returns the last line that it printed if it failed."""
    with log.open("w") as stream:
        code = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT).returncode
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return None if code == 0 else (lines[-1] if lines else f"exit code {code}")


def measured(bundle: Path, target: str) -> dict[str, Any] | None:
    """What the receipt of a bundle holds for a target."""
    receipt = read_receipt(bundle / RECEIPT_NAME)
    found: dict[str, Any] | None = receipt["targets"].get(target)
    return found


def rows_of(entry: Entry, bundle: Path, failures: dict[str, str]) -> list[dict[str, Any]]:
    """The lines of the table for a model: FP32 on each runtime, then the files of each target."""
    name = {"model": entry.name, "shape": f"{entry.shape[0]} x {entry.shape[1]}"}
    if "export" in failures or not (bundle / RECEIPT_NAME).is_file():
        return [{**name, "note": failures.get("export", "not exported")}]
    manifest, receipt = load_manifest(bundle), read_receipt(bundle / RECEIPT_NAME)
    name["task"] = manifest.task
    rows: list[dict[str, Any]] = []
    for parity in receipt["parity"]["runtimes"]:
        found, share, of = parity["detections"], parity["argmax_agreement"], ""
        if found:
            share = found["matched"] / max(found["eager"], found["exported"])
            of = f" of {found['eager']} objects"
        size = receipt["size_bytes"][MODEL_FILE]
        runtime = {"runtime": parity["runtime"], "precision": "fp32"}
        rows.append({**name, **runtime, "bytes": size, "parity": share, "of": of})
    for target in TARGETS:
        result = measured(bundle, target)
        if target in failures or not result:
            note = failures.get(target, "not made")
            rows.append({**name, "runtime": target, "precision": "int8", "note": note})
        else:
            rows += [row | name for row in target_rows(target, result, receipt, rows, failures.get("engine"))]
    return rows


def target_rows(
    target: str,
    result: dict[str, Any],
    receipt: dict[str, Any],
    float_rows: list[dict[str, Any]],
    engine_failure: str | None,
) -> Iterator[dict[str, Any]]:
    """A line per scored file of a target; the scores of FP32 go to the lines of FP32."""
    accuracy, latency = result["accuracy"], result["latency"]
    measures = [key for key in MAIN_MEASURES if key in accuracy["fp32"]]
    engines = {
        check["file"]: f"{check['capability'].upper()}, {check['seconds']:.0f} s"
        for check in result.get("engine_checks", ())
    }
    for row in float_rows:
        if row["precision"] == "fp32" and row["runtime"] == TARGETS[target].runtime:
            row["scores"] = {LABELS[key]: accuracy["fp32"][key] for key in measures}
            row["latency_ms"] = latency and latency["fp32"]["p50_ms"]
    for file in TARGETS[target].files[: TARGETS[target].scored]:
        scores = accuracy[file.precision]
        row = {
            "runtime": target,
            "precision": file.precision,
            "bytes": receipt["size_bytes"][file.name],
            "scores": {LABELS[key]: scores[key] for key in measures},
            "drops": {LABELS[key]: accuracy["fp32"][key] - scores[key] for key in measures},
            "engine": engines.get(file.name, engine_failure and f"**fails**: {engine_failure}"),
        }
        if file.precision == "int8":
            agreement = result["agreement"]
            row["agreement"] = next((agreement[key] for key in AGREEMENTS if key in agreement), None)
            row["int8_share"] = result["int8_share"]
            row["latency_ms"] = latency and latency["int8"]["p50_ms"]
        yield row


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines = [f"| {TITLES} |", "|---" * (TITLES.count("|") + 1) + "|"]
    before = None
    for row in rows:
        model = "" if row["model"] == before else f"`{row['model']}`, {row['shape']}"
        before = row["model"]
        if "note" in row:
            cells = [row.get("runtime", ""), row.get("precision", ""), f"**fails**: {row['note']}", *[""] * 6]
        else:
            parity, agreement, share = row.get("parity"), row.get("agreement"), row.get("int8_share")
            cells = [
                row["runtime"],
                row["precision"].upper(),
                ", ".join(f"{label} {value:.2f}" for label, value in row.get("scores", {}).items()),
                ", ".join(f"{-value:+.2f}" for value in row.get("drops", {}).values()),
                f"{parity:.2%}{row['of']}" if parity is not None else "" if agreement is None else f"{agreement:.2%}",
                "" if share is None else f"{share:.1%}",
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['latency_ms']:.0f}" if row.get("latency_ms") else "",
                row.get("engine") or "",
            ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (model, *cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_cli(main)
