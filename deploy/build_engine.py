"""Build TensorRT engines of a bundle on this device: ``python -m deploy.build_engine BUNDLE``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from deploy.cli import run_cli
from deploy.engines.build import FLOAT32_PREFIX, BuildRequest, Built, build, show_progress
from deploy.engines.device import Device, read_device
from deploy.engines.layers import check_precision, inspect
from deploy.engines.record import ENGINES, EngineRecord, engine_name, save_engine, source_file
from deploy.engines.releases import Release, import_tensorrt, release_of, runtime_version
from deploy.engines.torch_compile import compile_program, save_compiled
from deploy.files import sha256_of
from deploy.machine import now
from deploy.manifest import PRECISIONS, Manifest, load_manifest
from deploy.reference import REFERENCE_NAME, ReferenceCheck, check_reference, load_reference
from deploy.runtimes import ENGINE_RUNTIMES, create_runtime
from deploy.specs import check_share
from deploy.table import format_table

_FREE_SHARE = 0.5  # of the free memory, for the work space of kernels: a Jetson's CPU uses the same memory
_MIN_SHARE = 0.9
_MIB = 1 << 20
Plan = list[tuple[str, bool, str]]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.build_engine", description="Build TensorRT engines of a bundle on this device."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
    parser.add_argument(
        "--runtime",
        choices=ENGINE_RUNTIMES,
        default="tensorrt",
        help="what will run them; torch-tensorrt compiles the bundle's exported programs; default: tensorrt",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, nargs="+", help="default: fp16 and int8, as far as the bundle has files"
    )
    typing = parser.add_mutually_exclusive_group()
    typing.add_argument(
        "--strongly-typed",
        action="store_true",
        default=None,
        help="compute as the file says; default from TensorRT 10.12 on, and for fp16 and fp32 from 10.0 on",
    )
    typing.add_argument(
        "--weakly-typed", dest="strongly_typed", action="store_false", help="let flags allow precisions; until 10.x"
    )
    parser.add_argument(
        "--workspace", type=int, metavar="MIB", help="memory for kernels; default: half of what is free"
    )
    parser.add_argument(
        "--min-share",
        type=float,
        metavar="SHARE",
        help=f"of the multiplications, how many must run as asked or narrower, 0 to 1; default: {_MIN_SHARE}",
    )
    parser.add_argument(
        "--print-trtexec", action="store_true", help="print the command lines of trtexec that do the same, and end"
    )
    return parser.parse_args(argv)


def chooses_strong(release: Release, precision: str, asked: bool | None) -> bool:
    """Say whether an engine is strongly typed: as asked, else as is best supported.

    INT8 has a weakly typed file, which is what releases before 10.12 know best; float16 and float32 have none, and are
    strongly typed wherever that exists.
    """
    if asked is not None:
        return asked
    return release.prefers_strong if precision == "int8" else release.strongly_typed


def plan(manifest: Manifest, release: Release, precisions: Sequence[str] | None, asked: bool | None) -> Plan:
    """Choose what to build.

    Args:
        manifest: The bundle's.
        release: Of TensorRT.
        precisions: Asked for; None for fp16 and int8, as far as there are files.
        asked: Whether strongly typed; None to choose.

    Returns:
        Tuples of precision, whether it is strongly typed, and file.

    Raises:
        ValueError: There is no file for a precision that was asked for, or none at all.
    """
    chosen = []
    for precision in dict.fromkeys(precisions or ("fp16", "int8")):
        strong = chooses_strong(release, precision, asked)
        try:
            chosen.append((precision, strong, source_file(manifest, precision, strong)))
        except ValueError:
            if precisions is not None:
                raise
    if not chosen:
        source_file(manifest, "int8", chooses_strong(release, "int8", asked))  # says what is missing
    return chosen


def trtexec_line(bundle: str, model: str, name: str, strong: bool, precision: str, workspace: int | None) -> str:
    """Return the command line of trtexec that builds the same engine (it writes no record and checks nothing)."""
    folder = Path(bundle)
    words = [
        "trtexec",
        f"--onnx={folder / model}",
        f"--saveEngine={folder / ENGINES / name}-trtexec.engine",  # not in the place of one that was checked
        f"--timingCacheFile={folder / ENGINES / name.rpartition('-')[0]}.timings",
        "--profilingVerbosity=detailed",
        "--noTF32",
        "--skipInference",
    ]
    if workspace is not None:
        words.append(f"--memPoolSize=workspace:{workspace // _MIB}")
    if strong:
        words.append("--stronglyTyped")
    elif precision != "fp32":
        words += ["--fp16"] + ["--int8"] * (precision == "int8")
        words += ["--precisionConstraints=obey", f"--layerPrecisions={FLOAT32_PREFIX}*:fp32"]
    return shlex.join(words)


def check_outputs(
    bundle: str, engine: Path, manifest: Manifest, model: str, runtime_name: str
) -> ReferenceCheck | None:
    """Run an engine on the bundle's own inputs; None if the bundle has no reference.

    Raises:
        ValueError: Its outputs differ from the workstation's by more than the tolerance.
    """
    if not (Path(bundle) / REFERENCE_NAME).is_file():
        return None
    runtime = create_runtime(runtime_name, engine, manifest.input, manifest.outputs, threads=1)
    result = check_reference(runtime, load_reference(bundle), model, manifest.outputs)
    if close := getattr(runtime, "close", None):  # of TensorRT: memory for the next engine
        close()
    if not result.passed:
        raise ValueError(
            f"the engine of {model} gives other results than the workstation: {result.output} is off by "
            f"{result.error:.2e}, {result.tolerance:.2e} passes. Nothing was written"
        )
    return result


@contextmanager
def trial_of(bundle: str, engine: str) -> Iterator[Path]:
    """Give a hidden file beside the engines for one that is not checked yet; it does not stay."""
    folder = Path(bundle) / ENGINES
    folder.mkdir(exist_ok=True)
    trial = folder / f".trial-{engine}"
    try:
        yield trial
    finally:
        trial.unlink(missing_ok=True)


def keep(bundle: str, manifest: Manifest, trial: Path, record: EngineRecord) -> EngineRecord:
    """Check what an engine gives, and only then move it to its place, with its record complete."""
    check = check_outputs(bundle, trial, manifest, record.model, record.runtime)
    record = replace(record, sha256=sha256_of(trial), check=None if check is None else asdict(check))
    save_engine(bundle, trial, record)
    return record


def build_one(
    trt: Any,
    args: argparse.Namespace,
    manifest: Manifest,
    device: Device,
    workspace: int,
    chosen: tuple[str, bool, str],
) -> EngineRecord:
    """Build, inspect and check one engine, and only then write it.

    Returns:
        Its record.

    Raises:
        ValueError: It cannot be built, or is not what was asked for.
    """
    precision, strong, model = chosen
    manifest.verify(args.bundle, model)
    version = str(trt.__version__)
    name = engine_name(device, "tensorrt", version, precision)
    with trial_of(args.bundle, f"{name}.engine") as trial:
        timings = trial.with_name(f"{name.rpartition('-')[0]}.timings")
        request = BuildRequest(Path(args.bundle) / model, precision, strong, workspace, timings)
        built: Built = build(trt, request, show_progress)
        report = inspect(trt, built.engine, manifest, model, precision)
        check_precision(report, precision, _MIN_SHARE if args.min_share is None else args.min_share)
        trial.write_bytes(built.engine)
        record = EngineRecord(
            engine=f"{name}.engine",
            runtime="tensorrt",
            version=version,
            sha256="",
            model=model,
            model_sha256=manifest.files[model].sha256,
            precision=precision,
            strongly_typed=strong,
            device=device.to_dict(),
            built={
                "date": now(),
                "seconds": built.seconds,
                "workspace_bytes": workspace,
                "warnings": list(built.warnings[:10]),
            },
            layers=report.to_dict(),
            check=None,
        )
        return keep(args.bundle, manifest, trial, record)


def compile_one(args: argparse.Namespace, manifest: Manifest, device: Device, precision: str) -> EngineRecord:
    """Compile one exported program with Torch-TensorRT, check it, and only then write it.

    Returns:
        Its record.

    Raises:
        ValueError: The bundle has no such program, it cannot be compiled, or gives other results.
    """
    model, workspace = program_of(manifest, precision), workspace_of(args.workspace, device)
    manifest.verify(args.bundle, model)
    version = runtime_version(args.runtime)
    name = engine_name(device, args.runtime, version, precision)
    print(f"Compiling {precision} from {model}; minutes on a Jetson")
    compiled = compile_program(Path(args.bundle) / model, manifest.input, workspace)
    if compiled.in_torch:
        some = ", ".join(f"{count} x {name}" for name, count in list(compiled.in_torch.items())[:5])
        print(f"Not taken by TensorRT: {sum(compiled.in_torch.values())} operators ({some}); PyTorch runs them")
    with trial_of(args.bundle, f"{name}.pt2") as trial:
        save_compiled(compiled, manifest.input, trial)
        record = EngineRecord(
            engine=f"{name}.pt2",
            runtime=args.runtime,
            version=version,
            sha256="",
            model=model,
            model_sha256=manifest.files[model].sha256,
            precision=precision,
            strongly_typed=True,
            device=device.to_dict(),
            built={"date": now(), "seconds": compiled.seconds, "workspace_bytes": workspace, "warnings": []},
            layers={"engines": compiled.engines, "in_torch": compiled.in_torch},
            check=None,
        )
        return keep(args.bundle, manifest, trial, record)


def program_of(manifest: Manifest, precision: str) -> str:
    """Choose the exported program of a precision.

    Raises:
        ValueError: There is none; says how to have one.
    """
    if precision == "int8":
        raise ValueError("Torch-TensorRT gets no int8 here; take --runtime tensorrt for it, or --precision fp16")
    try:
        return manifest.select("torch", precision)
    except ValueError as error:
        raise ValueError(f"{error}: on the workstation run tools/export.py with --format pt2") from error


def workspace_of(mib: int | None, device: Device) -> int:
    """Return the bytes that kernels may use: as asked, else half of what is free."""
    if mib is None:
        return int(device.free_bytes * _FREE_SHARE)
    if not 1 <= mib <= device.memory_bytes // _MIB:
        raise ValueError(f"--workspace {mib} must lie in 1 to {device.memory_bytes // _MIB} MiB, the device's memory")
    return mib * _MIB


def records_table(records: Sequence[EngineRecord]) -> str:
    """Format what was built."""
    rows = []
    for record in records:
        if record.runtime == "tensorrt":
            found = ", ".join(f"{name} {share:.0%}" for name, share in record.layers["found"].items())
        else:
            found = f"as written, {record.layers['engines']} engines"
        error = "no reference" if record.check is None else f"{record.check['error']:.1e}"
        typing = "strongly" if record.strongly_typed else "weakly"
        rows.append([record.engine, record.precision, typing, found, error, f"{record.built['seconds']:.0f}"])
    return format_table(["engine", "asked", "typed", "multiplications in", "error", "seconds"], rows, right={4, 5})


def compile_all(args: argparse.Namespace, manifest: Manifest) -> int:
    """Run the command for Torch-TensorRT.

    Returns:
        0.
    """
    given = {
        "--strongly-typed or --weakly-typed": args.strongly_typed is not None,
        "--min-share": args.min_share is not None,
        "--print-trtexec": args.print_trtexec,
    }
    for option in [name for name, used in given.items() if used]:
        raise ValueError(f"{option} is for --runtime tensorrt; Torch-TensorRT computes as the program says")
    precisions = list(dict.fromkeys(args.precision or ["fp16"]))
    for precision in precisions:
        program_of(manifest, precision)
    version, device = runtime_version(args.runtime), read_device()
    print(f"{device.board or device.gpu} ({device.compute_capability}), Torch-TensorRT {version}")
    print(records_table([compile_one(args, manifest, device, precision) for precision in precisions]))
    print(f"Compiled programs and their records are in {Path(args.bundle) / ENGINES}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0.
    """
    args = parse_args(argv)
    check_share("--min-share", args.min_share)
    manifest = load_manifest(args.bundle)
    if args.runtime != "tensorrt":
        return compile_all(args, manifest)
    trt = import_tensorrt()
    release = release_of(trt)
    device = read_device()
    chosen = plan(manifest, release, args.precision, args.strongly_typed)
    workspace = workspace_of(args.workspace, device)
    if args.print_trtexec:
        print(shlex.join(["mkdir", "-p", str(Path(args.bundle) / ENGINES)]))
        for precision, strong, model in chosen:
            name = engine_name(device, "tensorrt", trt.__version__, precision)
            print(trtexec_line(args.bundle, model, name, strong, precision, workspace))
        return 0
    print(f"{device.board or device.gpu} ({device.compute_capability}), TensorRT {trt.__version__}")
    records, failures = [], []
    for precision, strong, model in chosen:
        print(f"Building {precision} from {model}, {'strongly' if strong else 'weakly'} typed; minutes on a Jetson")
        try:
            records.append(build_one(trt, args, manifest, device, workspace, (precision, strong, model)))
        except ValueError as error:  # the other precision may still be had
            failures.append(f"{precision}: {error}")
            print(f"{precision} failed: {error}", file=sys.stderr)
    if records:
        print(records_table(records))
        print(f"Engines and their records are in {Path(args.bundle) / ENGINES}")
    if failures:
        raise ValueError("; ".join(failures))
    return 0


if __name__ == "__main__":
    run_cli(main)
