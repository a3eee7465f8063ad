"""Measure a bundle on this device, or check it: ``python -m deploy.bench BUNDLE [--check]``."""

import argparse
import datetime
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.io import read_image
from deploy.manifest import PRECISIONS, InputSpec
from deploy.predictor import Predictor
from deploy.reference import REFERENCE_NAME, check_reference, load_reference
from deploy.runtimes import RUNTIMES, Runtime
from deploy.table import format_table

CHECK_FAILED = 1


@dataclass(frozen=True)
class Latency:
    """Times of one thing measured repeatedly.

    Attributes:
        samples_ms: In the order taken; samples of equal index in one `measure` were taken next to each other.
    """

    samples_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        """The median."""
        return float(np.percentile(self.samples_ms, 50))

    @property
    def p95_ms(self) -> float:
        """The time that 95 % of the calls stay below."""
        return float(np.percentile(self.samples_ms, 95))

    @property
    def mean_ms(self) -> float:
        """The mean."""
        return float(np.mean(self.samples_ms))

    @property
    def images_per_s(self) -> float:
        """Images per second of one call after another, at a batch of 1."""
        return 1e3 / self.mean_ms

    def to_dict(self) -> dict[str, float]:
        """Return the summary, rounded to microseconds."""
        names = ("p50_ms", "p95_ms", "mean_ms", "images_per_s")
        return {name: round(getattr(self, name), 3) for name in names}


def measure_calls(calls: Sequence[Callable[[], object]], warmup: int, iterations: int) -> list[Latency]:
    """Time several calls interleaved: one of each per iteration, so that a drifting clock or load meets them all alike.

    Args:
        calls: What to time.
        warmup: Untimed iterations before.
        iterations: Timed iterations, 1 or more. Each starts with another call, so that none always follows the same.

    Returns:
        A latency for each call.

    Raises:
        ValueError: A count is out of range.
    """
    if warmup < 0 or iterations < 1:
        raise ValueError(f"warmup is {warmup}, iterations {iterations}; expected at least 0 and 1")
    samples: list[list[float]] = [[] for _ in calls]
    for iteration in range(-warmup, iterations):
        for offset in range(len(calls)):
            index = (iteration + offset) % len(calls)
            start = time.perf_counter()
            calls[index]()
            elapsed = (time.perf_counter() - start) * 1e3
            if iteration >= 0:
                samples[index].append(elapsed)
    return [Latency(tuple(values)) for values in samples]


def measure(runtimes: Sequence[Runtime], tensor: npt.NDArray[Any], warmup: int, iterations: int) -> list[Latency]:
    """Time the models alone, interleaved, on one input tensor; see `measure_calls`."""
    return measure_calls([partial(runtime, tensor) for runtime in runtimes], warmup, iterations)


def paired_ratio(first: Latency, second: Latency) -> float:
    """Return the median over iterations of first / second: above 1, the second is faster."""
    return float(np.median(np.divide(first.samples_ms, second.samples_ms)))


def cpu_model() -> str:
    """Return the CPU's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _environment() -> dict[str, Any]:
    """What every record states about when and where it was made."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "opencv": cv2.__version__},
    }


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
        **_environment(),
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

    Returns:
        A record ready for JSON.
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
    return {
        **_environment(),
        "image_size": list(image.shape[:2]),
        "warmup": warmup,
        "iterations": iterations,
        "results": results,
        "ratios": ratios,
    }


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
        format_table(["precision", "what", "p50 ms", "p95 ms", "mean ms", "images/s"], rows, right={2, 3, 4, 5}),
    ]
    lines += [
        f"{ratio['of'][0]} / {ratio['of'][1]}, median of pairs: model {ratio['model']:.2f}, "
        f"end to end {ratio['end_to_end']:.2f}"
        for ratio in report["ratios"]
    ]
    return "\n".join(lines)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(prog="python -m deploy.bench", description="Measure a bundle on this device.")
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
    parser.add_argument("--runtime", choices=RUNTIMES, default="openvino", help="default: openvino")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        nargs="+",
        help="several are measured interleaved; default: the runtime's own",
    )
    parser.add_argument("--threads", type=int, help="CPU threads; default: all this process may use")
    parser.add_argument("--warmup", type=int, default=5, help="untimed iterations; default: 5")
    parser.add_argument("--iterations", type=int, default=30, help="timed iterations; default: 30")
    parser.add_argument("--image", metavar="PATH", help=f"default: the first input of the bundle's {REFERENCE_NAME}")
    parser.add_argument("--json", metavar="FILE", help="write the full record here")
    parser.add_argument("--check", action="store_true", help=f"compare outputs with {REFERENCE_NAME}; no timing")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0, or 1 if a check failed.
    """
    args = parse_args(argv)
    if args.check and args.image is not None:
        raise ValueError(f"--check runs the inputs of {REFERENCE_NAME} and takes no --image; drop one of the two")
    if args.json is not None and not Path(args.json).absolute().parent.is_dir():
        raise ValueError(f"--json {args.json}: there is no folder {Path(args.json).parent}; create it first")
    predictors = [
        Predictor(args.bundle, runtime=args.runtime, precision=precision, threads=args.threads)
        for precision in dict.fromkeys(args.precision or [None])
    ]
    if args.check:
        report = {"bundle": args.bundle, **run_check(args.bundle, predictors)}
        text = check_text(report)
        code = 0 if all(result["check"]["passed"] for result in report["results"]) else CHECK_FAILED
    else:
        image, origin = choose_image(args.bundle, args.image, predictors[0].manifest.input)
        report = {"bundle": args.bundle, "image": origin, **run_bench(predictors, image, args.warmup, args.iterations)}
        text, code = report_text(report), 0
    print(text)
    if args.json is not None:
        write_json(args.json, report)
    return code


if __name__ == "__main__":
    run_cli(main)
