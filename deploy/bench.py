"""Measure a bundle on this device, or check it: ``python -m deploy.bench BUNDLE [--check]``."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.cli import run_cli
from deploy.files import check_folder_of, write_json
from deploy.io import read_image
from deploy.latency import measure, measure_calls, paired_ratio
from deploy.machine import PowerMonitor, environment, peak_memory_mb
from deploy.manifest import PRECISIONS, InputSpec, load_manifest
from deploy.predictor import Predictor
from deploy.receipt import RECEIPT_NAME, read_receipt
from deploy.reference import REFERENCE_NAME, check_reference, load_reference
from deploy.runtimes import DEFAULT_RUNTIME, ENGINE_RUNTIMES, RUNTIMES, default_runtime
from deploy.specs import TARGETS
from deploy.table import format_table

CHECK_FAILED = 1


def image_of_tensor(tensor: npt.NDArray[Any], spec: InputSpec) -> npt.NDArray[np.uint8]:
    """Turn an input tensor back into the image it shows, at the input's size.

    Args:
        tensor: (N, 3, H, W); the first is taken.
        spec: The input it was made for.

    Returns:
        (H, W, 3), BGR.
    """
    image = tensor[0].astype(np.float32).transpose(1, 2, 0)
    if not spec.normalize_in_graph:
        image = image * np.array(spec.std, np.float32) + np.array(spec.mean, np.float32)
    levels = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(levels[:, :, ::-1] if spec.color_order == "RGB" else levels)


def choose_image(bundle: str, path: str | None, spec: InputSpec) -> tuple[npt.NDArray[np.uint8], str]:
    """Give the image to measure on and where it came from: `path`, else the bundle's first reference input.

    Raises:
        ValueError: There is neither.
    """
    if path is not None:
        return read_image(path), path
    if not (Path(bundle) / REFERENCE_NAME).is_file():
        raise ValueError(f"{bundle} has no {REFERENCE_NAME} to measure on; give an image with --image")
    return image_of_tensor(load_reference(bundle).inputs[0], spec), f"{REFERENCE_NAME}: input_0, at the input's size"


def run_check(bundle: str, predictors: Sequence[Predictor]) -> Any:
    """Compare with the workstation's outputs.

    Returns:
        A record ready for JSON, with 'passed' for each file.
    """
    reference = load_reference(bundle)
    checks = [check_reference(item.runtime, reference, item.filename, item.manifest.outputs) for item in predictors]
    return {
        **environment(),
        "results": [
            {**item.describe(), "check": {**asdict(check), "passed": check.passed}}
            for item, check in zip(predictors, checks, strict=True)
        ],
    }


def check_text(report: Any) -> str:
    """Format the record of `run_check` for a terminal."""
    checks = [result["check"] for result in report["results"]]
    rows = [
        [
            check["filename"],
            check["output"],
            f"{check['error']:.2e}",
            f"{check['tolerance']:.2e}",
            "ok" if check["passed"] else "FAILED",
        ]
        for check in checks
    ]
    return format_table(["file", "worst output", "rel. error", "tolerance", "verdict"], rows, right={2, 3})


def run_bench(predictors: Sequence[Predictor], image: npt.NDArray[np.uint8], warmup: int, iterations: int) -> Any:
    """Measure every predictor, interleaved: the model alone, then preprocess, model and postprocess together.

    On a Jetson each then runs alone for a few seconds while its power is sampled.

    Returns:
        A record ready for JSON; 'fastest' is the precision whose model takes the least time, in pairs with each other.
    """
    tensor, _ = predictors[0].preprocess(image)
    model = measure([item.runtime for item in predictors], tensor, warmup, iterations)
    whole = measure_calls([partial(item.predict, image) for item in predictors], warmup, iterations)
    results = [
        {**item.describe(), "model": alone.to_dict(), "end_to_end": together.to_dict()}
        for item, alone, together in zip(predictors, model, whole, strict=True)
    ]
    ratios = [
        {
            "of": [results[0]["file"], results[index]["file"]],
            "model": round(paired_ratio(model[0], model[index]), 3),
            "end_to_end": round(paired_ratio(whole[0], whole[index]), 3),
        }
        for index in range(1, len(predictors))
    ]
    for result, predictor in zip(results, predictors, strict=True):
        result["power"] = power_alone(predictor, tensor) or None
    best = 0
    for index in range(1, len(predictors)):
        if paired_ratio(model[best], model[index]) > 1:
            best = index
    return {
        **environment(),
        "peak_memory_mb": peak_memory_mb(),
        "fastest": results[best]["precision"] if len(predictors) > 1 else None,
        "image_size": list(image.shape[:2]),
        "warmup": warmup,
        "iterations": iterations,
        "results": results,
        "ratios": ratios,
    }


def power_alone(predictor: Predictor, tensor: npt.NDArray[Any], seconds: float = 5.0) -> dict[str, float]:
    """Run one model alone for a while and sample the board's power; empty where that cannot be read.

    Returns:
        As of `deploy.machine.read_tegrastats`, with 'joules_per_image'.
    """
    with PowerMonitor() as monitor:
        if not monitor.running:
            return {}
        start, images = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < seconds:
            predictor.runtime(tensor)
            images += 1
    power = monitor.summary
    if "power_w" in power:
        power["joules_per_image"] = round(power["power_w"] * elapsed / images, 4)
    return power


def add_to_receipt(bundle: str, report: Any) -> None:
    """Add a record to the bundle's receipt, under 'devices' and the device's name.

    Raises:
        FileNotFoundError: The bundle has no receipt.
        ValueError: It is damaged.
    """
    path = Path(bundle) / RECEIPT_NAME
    receipt, first, board = read_receipt(path), report["results"][0], report["board"]
    where = [first["device"]] if board is None else [board["board"] or first["device"], board["power_mode"]]
    name = ", ".join([*filter(None, where), f"{first['runtime']} {first['version']}"])
    receipt.setdefault("devices", {})[name] = report
    write_json(path, receipt)


def markdown_row(report: Any) -> str:
    """Return the record as a row of docs/jetson-results.md.

    Args:
        report: From `run_bench`, with 'board' from `this_board`.
    """
    device = report["board"]
    by_precision = {result["precision"]: result for result in report["results"]}
    first = report["results"][0]
    where = first["device"] if device is None else device["board"] or device["gpu"]
    software = f"{first['runtime']} {first['version']}"
    jetpack = "" if device is None else device["jetpack"] or device["l4t"]
    mode = "" if device is None else device["power_mode"]
    times = [f"{by_precision[p]['model']['p50_ms']:.2f}" if p in by_precision else "" for p in PRECISIONS]
    best = by_precision.get(report["fastest"], first)
    whole = f"{best['end_to_end']['images_per_s']:.1f}"
    power = f"{best['power']['power_w']:.1f}" if best["power"] and "power_w" in best["power"] else ""
    size = "x".join(map(str, first["input_shape"][2:]))
    cells = [
        where,
        jetpack,
        software,
        mode,
        Path(report["bundle"]).name,
        size,
        *times,
        whole,
        power,
        report["date"][:10],
    ]
    return f"| {' | '.join(cells)} |"


def report_text(report: Any) -> str:
    """Format the record of `run_bench` for a terminal."""
    first = report["results"][0]
    rows = [
        [result["precision"], stage.replace("_", " "), *(f"{value:.2f}" for value in result[stage].values())]
        for stage in ("model", "end_to_end")
        for result in report["results"]
    ]
    lines = [
        f"{first['runtime']} {first['version']}, {first['threads']} threads, {report['cpu']}",
        f"input {'x'.join(map(str, first['input_shape']))}, image {'x'.join(map(str, report['image_size']))} (HxW), "
        f"{report['iterations']} iterations after {report['warmup']}, interleaved",
        format_table(
            ["precision", "what", "p50 ms", "p95 ms", "p99 ms", "mean ms", "images/s"], rows, right={2, 3, 4, 5, 6}
        ),
    ]
    lines += [
        f"{ratio['of'][0]} / {ratio['of'][1]}, median of pairs: model {ratio['model']:.2f}, "
        f"end to end {ratio['end_to_end']:.2f}"
        for ratio in report["ratios"]
    ]
    for result in report["results"]:
        power = result["power"] or {}
        if "power_w" in power:
            each = f"{power['power_w']:.1f} W, {power['joules_per_image']:.3f} J an image"
            heat = f", {power['temperature_c']:.0f} degrees at most" if "temperature_c" in power else ""
            lines.append(f"{result['precision']} alone: {each}{heat}")
    if report["fastest"] is not None:
        lines.append(f"Fastest: {report['fastest']}. Peak memory of this process: {report['peak_memory_mb']:.0f} MB")
    return "\n".join(lines)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(prog="python -m deploy.bench", description="Measure a bundle on this device.")
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
    parser.add_argument("--runtime", choices=RUNTIMES, help=f"default: {DEFAULT_RUNTIME}")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        nargs="+",
        help="several are measured interleaved; default: the runtime's own, or every engine",
    )
    parser.add_argument("--target", choices=TARGETS, help="take files made for this target")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all this process may use")
    parser.add_argument("--warmup", type=int, default=5, help="untimed iterations; default: 5")
    parser.add_argument("--iterations", type=int, default=30, help="timed iterations; default: 30")
    parser.add_argument("--image", metavar="PATH", help=f"default: the first input of the bundle's {REFERENCE_NAME}")
    parser.add_argument("--json", metavar="FILE", help="write the full record here")
    parser.add_argument("--receipt", action="store_true", help="write the record into the bundle's receipt too")
    parser.add_argument("--markdown", action="store_true", help="print it as a row for docs/jetson-results.md too")
    parser.add_argument("--check", action="store_true", help=f"compare outputs with {REFERENCE_NAME}; no timing")
    return parser.parse_args(argv)


def default_precisions(bundle: str, runtime: str) -> list[str | None]:
    """What is measured unless asked otherwise: of engines every one that fits this device, else the default."""
    if runtime not in ENGINE_RUNTIMES:
        return [None]
    from deploy.engines.device import read_device
    from deploy.engines.record import mismatch, records_of
    from deploy.engines.releases import runtime_version

    version, device, manifest = runtime_version(runtime), read_device(), load_manifest(bundle)
    records, _ = records_of(bundle)
    fitting = {item.precision for item in records if mismatch(item, manifest, device, runtime, version) is None}
    return [precision for precision in PRECISIONS if precision in fitting] or [None]


def this_board(runtime: str) -> Any:
    """Describe the board, with power mode and clocks, and for engines its GPU; None for another computer's CPU."""
    from deploy.engines.device import board_of, read_device

    if runtime in ENGINE_RUNTIMES:
        return read_device().to_dict()
    board = board_of()
    return board if board["l4t"] else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0, or 1 if a check failed.
    """
    args = parse_args(argv)
    if args.check and args.image is not None:
        raise ValueError(f"--check runs the inputs of {REFERENCE_NAME} and takes no --image; drop one of the two")
    check_folder_of("--json", args.json)
    if args.check and (args.receipt or args.markdown):
        raise ValueError("--check measures no time, which --receipt and --markdown write; drop one of them")
    args.runtime = args.runtime or default_runtime(args.bundle)
    if args.receipt:
        read_receipt(Path(args.bundle) / RECEIPT_NAME)  # damaged, it is refused before anything is measured
    predictors = [
        Predictor(args.bundle, runtime=args.runtime, precision=precision, target=args.target, threads=args.threads)
        for precision in dict.fromkeys(args.precision or default_precisions(args.bundle, args.runtime))
    ]
    if args.check:
        report = {"bundle": args.bundle, **run_check(args.bundle, predictors)}
        text = check_text(report)
        code = 0 if all(result["check"]["passed"] for result in report["results"]) else CHECK_FAILED
    else:
        image, origin = choose_image(args.bundle, args.image, predictors[0].manifest.input)
        board = this_board(args.runtime)  # its clocks before the measuring
        measured = run_bench(predictors, image, args.warmup, args.iterations)
        report = {"bundle": args.bundle, "image": origin, "board": board, **measured}
        text, code = report_text(report), 0
    print(text)
    if args.receipt:
        add_to_receipt(args.bundle, report)
    if args.markdown:
        print(markdown_row(report))
    if args.json is not None:
        write_json(args.json, report)
    return code


if __name__ == "__main__":
    run_cli(main)
