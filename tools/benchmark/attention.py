"""Time and peak memory of ViTDet-B's backbone beside transformers' VitDetBackbone, relative position on, window 14.

python tools/benchmark/attention.py [--sizes 512 1024] [--modes forward training] [--json FILE]

Both have the same shapes and random weights. Each run is a process of its own, the two in turn; its peak memory is
counted from after the model and the image are there. 'training' is a forward and a backward pass.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from deploy.cli import run_cli
from deploy.files import write_json
from deploy.machine import cpu_model
from deploy.predictor import default_threads

KINDS = ("vitdense", "transformers")
MODES = ("forward", "training")
GLOBAL_BLOCKS = (2, 5, 8, 11)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of attention beside transformers")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024], help="sides of the image in pixels")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--rounds", type=int, default=2, help="processes of each kind, in turn (default: 2)")
    parser.add_argument("--iterations", type=int, default=2, help="timed passes in each (default: 2)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="CPU threads (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--run", nargs=3, metavar=("KIND", "SIZE", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        kind, size, mode = args.run
        print(json.dumps(measure(kind, int(size), mode, args.iterations, args.threads)))
        return
    cases = [(size, mode) for size in args.sizes for mode in args.modes]
    records = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=len(cases) * args.rounds * len(KINDS))
        for size, mode in cases:
            runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
            for _ in range(args.rounds):
                for kind in KINDS:
                    runs[kind].append(run_process(kind, size, mode, args))
                    progress.advance(task)
            records.append(summarise(size, mode, runs))
    title = f"ViTDet-B backbone, {args.threads} threads, {cpu_model()}"
    Console().print(table_of(records, title))
    if args.json:
        write_json(args.json, {"threads": args.threads, "cpu": cpu_model(), "rounds": args.rounds, "cases": records})


def run_process(kind: str, size: int, mode: str, args: argparse.Namespace) -> dict[str, float]:
    """Measures in a fresh process.

    Raises:
        ValueError: The process ended otherwise, for instance for want of memory.
    """
    line = [sys.executable, __file__, "--run", kind, str(size), mode]
    line += ["--iterations", str(args.iterations), "--threads", str(args.threads)]
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    if result.returncode:
        reason = result.stderr.strip().splitlines()[-1:] or ["killed, perhaps for want of memory"]
        raise ValueError(f"{kind} at {size} ({mode}) ended with {result.returncode}: {reason[0]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def measure(kind: str, size: int, mode: str, iterations: int, threads: int) -> dict[str, float]:
    """Median time of a pass in seconds and the peak above what model and image take, in bytes."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = build(kind).train(mode == "training")
    image = torch.randn(1, 3, size, size)

    def step() -> None:
        if mode == "forward":
            with torch.no_grad():
                call(model, image)
            return
        call(model, image).sum().backward()
        model.zero_grad(set_to_none=True)

    reset_peak()
    before = resident("VmRSS")
    times = []
    for i in range(iterations + 1):
        start = time.perf_counter()
        step()
        if i:  # the first warms up
            times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "bytes": resident("VmHWM") - before}


def reset_peak() -> None:
    """Starts the peak of resident memory anew: importing and building had one of their own (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(field: str) -> int:
    """A field of /proc/self/status in bytes: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def build(kind: str) -> Any:
    """One of the two models; a test holds their outputs together, here they only need the same shapes."""
    if kind == "vitdense":
        from vitdense.models import ViT

        options = dict(window_size=14, global_attn_indexes=GLOBAL_BLOCKS, use_rel_pos=True, img_size=1024)
        return ViT("base", **options)
    from transformers import VitDetBackbone, VitDetConfig

    windowed = [i for i in range(12) if i not in GLOBAL_BLOCKS]
    config = VitDetConfig(
        image_size=1024,
        pretrain_image_size=224,
        window_size=14,
        window_block_indices=windowed,
        use_relative_position_embeddings=True,
        out_indices=[12],
    )
    return VitDetBackbone(config)


def call(model: Any, image: Any) -> Any:
    out = model(image)
    return out[0] if isinstance(out, tuple) else out.feature_maps[0]


def summarise(size: int, mode: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    ours, theirs = (runs[kind] for kind in KINDS)
    tokens = (size // 16) ** 2
    return {
        "size": size,
        "mode": mode,
        "seconds": {kind: statistics.median(run["seconds"] for run in runs[kind]) for kind in KINDS},
        "speedup": statistics.median(b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)),
        "bytes": {kind: statistics.median(run["bytes"] for run in runs[kind]) for kind in KINDS},
        "score_matrix_bytes": 12 * tokens**2 * 4,  # of one global block
    }


def table_of(records: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    for column in ("size", "pass", "vitdense, s", "theirs, s", "faster", "MB", "theirs", "less", "a score matrix"):
        table.add_column(column, justify="left" if column == "pass" else "right")
    for record in records:
        ours, theirs = (record["bytes"][kind] / 1e6 for kind in KINDS)
        table.add_row(
            str(record["size"]),
            record["mode"],
            *(f"{record['seconds'][kind]:.2f}" for kind in KINDS),
            f"{record['speedup']:.2f}x",
            f"{ours:.0f}",
            f"{theirs:.0f}",
            f"{theirs - ours:.0f}",
            f"{record['score_matrix_bytes'] / 1e6:.0f} MB",
        )
    return table


if __name__ == "__main__":
    run_cli(main)
