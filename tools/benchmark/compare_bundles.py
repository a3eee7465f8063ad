"""Time two bundles against each other in one process, in turn, so that a drifting machine meets both alike.

python tools/benchmark/compare_bundles.py BUNDLE_A BUNDLE_B [--runtime openvino] [--precision int8] [--json FILE]
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.latency import measure_calls, paired_ratio
from deploy.machine import cpu_model
from deploy.predictor import Predictor, default_threads
from deploy.reference import load_reference
from deploy.runtimes import RUNTIMES


def main() -> None:
    parser = argparse.ArgumentParser(description="Time two bundles against each other")
    parser.add_argument("bundles", nargs=2, type=Path, metavar="BUNDLE")
    parser.add_argument("--runtime", default="openvino", choices=RUNTIMES)
    parser.add_argument("--precision", choices=["fp32", "int8"], help="default: what the runtime runs best")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    args = parser.parse_args()
    options = dict(runtime=args.runtime, precision=args.precision, threads=args.threads)
    predictors = [Predictor(bundle, **options) for bundle in args.bundles]
    # Each gets a real image of its own bundle, as it was fed on the workstation.
    tensors = [load_reference(bundle).inputs[0] for bundle in args.bundles]
    calls = [lambda p=p, t=t: p.runtime(t) for p, t in zip(predictors, tensors, strict=True)]
    latencies = measure_calls(calls, args.warmup, args.iterations)
    ratio = paired_ratio(*latencies)
    table = Table(title=f"{args.runtime}, {args.threads} threads, {cpu_model()}")
    for column in ("bundle", "file", "input", "p50, ms", "p95, ms"):
        table.add_column(column, justify="right" if "ms" in column else "left")
    for bundle, predictor, latency in zip(args.bundles, predictors, latencies, strict=True):
        size = "x".join(map(str, predictor.manifest.input.size))
        table.add_row(bundle.name, predictor.filename, size, f"{latency.p50_ms:.1f}", f"{latency.p95_ms:.1f}")
    console = Console()
    console.print(table)
    console.print(f"{args.bundles[0].name} / {args.bundles[1].name}: {ratio:.3f} (median of {args.iterations} pairs)")
    if args.json:
        record = [{**p.describe(), **latency.to_dict()} for p, latency in zip(predictors, latencies, strict=True)]
        write_json(args.json, {"cpu": cpu_model(), "first": record[0], "second": record[1], "ratio": ratio})


if __name__ == "__main__":
    run_cli(main)
