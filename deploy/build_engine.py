"""Build TensorRT engines of a bundle on this device: ``python -m deploy.build_engine BUNDLE``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.cli import run_cli
from deploy.engines.build import FLOAT32_PREFIX, BuildRequest, Built, build, make_log, show_progress
from deploy.engines.device import Device, read_device
from deploy.engines.layers import NARROWEST_FIRST, PrecisionReport, precision_report, read_layers
from deploy.engines.record import ENGINES, EngineRecord, engine_name, save_engine, source_file
from deploy.engines.releases import Release, import_tensorrt, release_of
from deploy.files import sha256_of
from deploy.machine import now
from deploy.manifest import PRECISIONS, Manifest, load_manifest
from deploy.reference import REFERENCE_NAME, ReferenceCheck, check_reference, load_reference
from deploy.table import format_table

_FREE_SHARE = 0.5  # of the free memory, for the work space of kernels: a Jetson's CPU uses the same memory
_MIB = 1 << 20
Plan = list[tuple[str, bool, str]]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.build_engine", description="Build TensorRT engines of a bundle on this device."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
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
        default=0.9,
        metavar="SHARE",
        help="of the multiplications, how many must run as asked or narrower, 0 to 1; default: 0.9",
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
        f"--saveEngine={folder / ENGINES / name}.engine",
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


def inspect(trt: Any, engine: bytes, manifest: Manifest, model: str, precision: str) -> PrecisionReport:
    """Read from an engine in which precision its layers compute.

    Raises:
        ValueError: It cannot be loaded, or says nothing of its layers.
    """
    log = make_log(trt)
    runtime = trt.Runtime(log)
    loaded = runtime.deserialize_cuda_engine(engine)
    if loaded is None:
        raise ValueError(f"TensorRT cannot load the engine that it built: {'; '.join(log.errors[-2:])}")
    text = loaded.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    asked = {
        node: (kind, products)
        for kind, nodes in manifest.files[model].layers.items()
        for node, products in nodes.items()
    }
    layers = read_layers(text)
    if not asked and precision == "fp32":
        # The float32 file has no record; none of its layers may be narrower.
        asked = {node: ("fp32", 1) for layer in layers for node in layer.nodes if layer.precision}
        narrow = [layer.name for layer in layers if layer.precision in NARROWEST_FIRST[:2]]
        if narrow:
            raise ValueError(f"the fp32 engine computes in fewer bits at {', '.join(narrow[:5])}")
    if not asked:
        raise ValueError(f"the manifest does not say what {model} asks for; run tools/quantize.py again")
    return precision_report(layers, asked)


def check_precision(report: PrecisionReport, precision: str, lowest: float) -> None:
    """Raise a `ValueError` if less than the share `lowest` of the multiplications runs as asked or narrower."""
    if report.share < lowest:
        found = ", ".join(f"{share:.0%} {name}" for name, share in report.found.items())
        raise ValueError(
            f"the {precision} engine is not what was asked for: {report.share:.1%} of its multiplications run as the "
            f"file says or narrower, at least {lowest:.0%} must; it computes {found}. First: "
            f"{', '.join(report.slower[:5])}. Nothing was written; --min-share {report.share:.2f} would take it"
        )


def check_outputs(bundle: str, engine: Path, manifest: Manifest, model: str) -> ReferenceCheck | None:
    """Run an engine on the bundle's own inputs; None if the bundle has no reference.

    Raises:
        ValueError: Its outputs differ from the workstation's by more than the tolerance.
    """
    if not (Path(bundle) / REFERENCE_NAME).is_file():
        return None
    from deploy.runtimes.tensorrt import TensorRTRuntime

    runtime = TensorRTRuntime(engine, manifest.input, manifest.outputs)
    result = check_reference(runtime, load_reference(bundle), model, manifest.outputs)
    runtime.close()
    if not result.passed:
        raise ValueError(
            f"the engine of {model} gives other results than the workstation: {result.output} is off by "
            f"{result.error:.2e}, {result.tolerance:.2e} passes. Nothing was written"
        )
    return result


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
    folder = Path(args.bundle) / ENGINES
    folder.mkdir(exist_ok=True)
    name = engine_name(device, trt.__version__, precision)
    request = BuildRequest(
        Path(args.bundle) / model,
        precision,
        strong,
        workspace,
        folder / f"{name.rpartition('-')[0]}.timings",
    )
    built: Built = build(trt, request, show_progress)
    report = inspect(trt, built.engine, manifest, model, precision)
    check_precision(report, precision, args.min_share)
    trial = folder / f".{name}.trial"
    try:
        trial.write_bytes(built.engine)
        check = check_outputs(args.bundle, trial, manifest, model)
        record = EngineRecord(
            engine=f"{name}.engine",
            sha256=sha256_of(trial),
            model=model,
            model_sha256=manifest.files[model].sha256,
            precision=precision,
            strongly_typed=strong,
            tensorrt=str(trt.__version__),
            device=device.to_dict(),
            built={
                "date": now(),
                "seconds": built.seconds,
                "workspace_bytes": workspace,
                "warnings": list(built.warnings[:10]),
            },
            layers=report.to_dict(),
            check=None if check is None else asdict(check),
        )
        save_engine(args.bundle, built.engine, record)
    finally:
        trial.unlink(missing_ok=True)
    return record


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
        found = ", ".join(f"{name} {share:.0%}" for name, share in record.layers["found"].items())
        error = "no reference" if record.check is None else f"{record.check['error']:.1e}"
        typing = "strongly" if record.strongly_typed else "weakly"
        rows.append([record.engine, record.precision, typing, found, error, f"{record.built['seconds']:.0f}"])
    return format_table(["engine", "asked", "typed", "multiplications in", "error", "seconds"], rows, right={4, 5})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0.
    """
    args = parse_args(argv)
    if not 0 <= args.min_share <= 1:
        raise ValueError(f"--min-share {args.min_share} must lie between 0 and 1")
    manifest = load_manifest(args.bundle)
    trt = import_tensorrt()
    release = release_of(trt)
    device = read_device()
    chosen = plan(manifest, release, args.precision, args.strongly_typed)
    workspace = workspace_of(args.workspace, device)
    if args.print_trtexec:
        for precision, strong, model in chosen:
            name = engine_name(device, trt.__version__, precision)
            print(trtexec_line(args.bundle, model, name, strong, precision, workspace))
        return 0
    print(f"{device.board or device.gpu} ({device.compute_capability}), TensorRT {trt.__version__}")
    records = []
    for precision, strong, model in chosen:
        print(f"Building {precision} from {model}, {'strongly' if strong else 'weakly'} typed; minutes on a Jetson")
        records.append(build_one(trt, args, manifest, device, workspace, (precision, strong, model)))
    print(records_table(records))
    print(f"Engines and their records are in {Path(args.bundle) / ENGINES}")
    return 0


if __name__ == "__main__":
    run_cli(main)
