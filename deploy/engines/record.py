"""The record beside an engine, and when an engine may be loaded."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from deploy.engines.device import Device
from deploy.engines.releases import version_of
from deploy.files import sha256_of, write_json
from deploy.manifest import Manifest
from deploy.runtimes import ENGINE_RUNTIMES
from deploy.specs import PRECISIONS, check_choice, check_file_name

ENGINES = "engines"
RECORD_VERSION = 1


@dataclass(frozen=True)
class EngineRecord:
    """What `engines/<device>-<version>-<precision>.json` says of the engine beside it.

    Attributes:
        engine: Name of its file: a TensorRT engine, or a program that Torch-TensorRT compiled.
        runtime: Which of `deploy.runtimes.ENGINE_RUNTIMES` built it and loads it.
        version: Of that, the only one that can load it.
        sha256: Of the engine.
        model: Name of the bundle's file that it was built from.
        model_sha256: Of that file.
        precision: 'fp32', 'fp16' or 'int8'.
        strongly_typed: Whether it computes as the file says.
        device: As in `Device`, at the time of the build.
        built: When, and how long it took.
        layers: The precisions found in it, as in `PrecisionReport`; of a compiled program 'engines' and 'in_torch'.
        check: How it agreed with the workstation's outputs, as in `ReferenceCheck`; None if there are none.
        record_version: Of this format.

    Raises:
        ValueError: A value is out of its range.
    """

    engine: str
    runtime: str
    version: str
    sha256: str
    model: str
    model_sha256: str
    precision: str
    strongly_typed: bool
    device: dict[str, Any]
    built: dict[str, Any]
    layers: dict[str, Any]
    check: dict[str, Any] | None
    record_version: int = RECORD_VERSION

    def __post_init__(self) -> None:
        if self.record_version != RECORD_VERSION:
            raise ValueError(f"engine record_version is {self.record_version!r}; this deploy reads {RECORD_VERSION}")
        check_file_name("engine file", self.engine)
        check_file_name("engine model", self.model)
        check_choice("engine runtime", self.runtime, tuple(ENGINE_RUNTIMES))
        check_choice("engine precision", self.precision, PRECISIONS)
        for name in ("sha256", "model_sha256", "version"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"engine {name} is {getattr(self, name)!r}; expected a string")
        for name in ("device", "built", "layers"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"engine {name} is {getattr(self, name)!r}; expected an object")
        version_of(self.version)


def engine_name(device: Device, runtime: str, version: str, precision: str) -> str:
    """Return the file name of an engine, without its ending."""
    software = version if runtime == "tensorrt" else f"{runtime}-{version}"
    return f"{device.slug}-{software}-{precision}"


def save_engine(bundle: str | os.PathLike[str], trial: Path, record: EngineRecord) -> Path:
    """Move a finished engine to its place in a bundle and write its record; an older one of its name is replaced.

    Each file is whole or absent, and the record holds the engine's hash: what is left of an interruption between the
    two is refused by `load_record` and `verify_engine`.

    Args:
        bundle: The bundle's folder.
        trial: The engine, in the folder of the bundle's engines under another name.
        record: Of the engine.

    Returns:
        The engine's path.
    """
    path = Path(bundle) / ENGINES / record.engine
    os.replace(trial, path)
    write_json(path.with_suffix(".json"), asdict(record))
    return path


def load_record(path: Path) -> EngineRecord:
    """Read the record of an engine.

    Args:
        path: The JSON file.

    Raises:
        ValueError: It is damaged or of another version.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        unknown = set(values) - {item.name for item in fields(EngineRecord)}
        if unknown:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        record = EngineRecord(**values)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not an engine's record ({error}); build the engine again") from error
    if path.stem != Path(record.engine).stem:
        raise ValueError(f"{path} is the record of {record.engine}, not of {path.stem}; build the engine again")
    return record


def records_of(bundle: str | os.PathLike[str]) -> tuple[list[EngineRecord], dict[str, str]]:
    """Read all records of a bundle's engines, by name; the second is why some cannot be read, which hides no other."""
    records, damaged = [], {}
    for path in sorted((Path(bundle) / ENGINES).glob("*.json")):
        try:
            records.append(load_record(path))
        except ValueError as error:
            damaged[path.name] = str(error)
    return records, damaged


def find_engine(
    bundle: str | os.PathLike[str],
    manifest: Manifest,
    device: Device,
    runtime: str,
    version: str,
    precision: str | None = None,
) -> EngineRecord:
    """Choose the engine that fits this device, runtime and bundle.

    Args:
        bundle: The bundle's folder.
        manifest: Its manifest.
        device: This device.
        runtime: One of `deploy.runtimes.ENGINE_RUNTIMES`.
        version: Of it here.
        precision: 'fp32', 'fp16' or 'int8'. Defaults to the narrowest that there is.

    Raises:
        ValueError: There is none; says why each one that there is does not fit, and how to build one.
    """
    records, damaged = records_of(bundle)
    chosen = PRECISIONS[::-1] if precision is None else (precision,)
    reasons = {record.engine: mismatch(record, manifest, device, runtime, version) for record in records}
    for wanted in chosen:
        for record in records:
            if record.precision == wanted and reasons[record.engine] is None:
                return record
    command = f"python -m deploy.build_engine {os.fspath(bundle)}" + (f" --precision {precision}" if precision else "")
    command += f" --runtime {runtime}" if runtime != "tensorrt" else ""
    others = [f"{name} ({reason or 'another precision'})" for name, reason in (reasons | damaged).items()]
    have = f"has {', '.join(others)}" if others else "has no engine"
    raise ValueError(
        f"the bundle {have}; for {device.gpu} ({device.compute_capability}) with {ENGINE_RUNTIMES[runtime]} {version}"
        f"{f' in {precision}' if precision else ''} build one: {command}"
    )


def mismatch(record: EngineRecord, manifest: Manifest, device: Device, runtime: str, version: str) -> str | None:
    """Say why an engine must not be loaded here; None if it may."""
    if (record.runtime, record.version) != (runtime, version):
        return f"built with {ENGINE_RUNTIMES[record.runtime]} {record.version}"
    built = record.device
    alike = all(built.get(name) == getattr(device, name) for name in ("gpu", "compute_capability", "multiprocessors"))
    # A container does not see its board's name.
    boards = {built.get("board") or device.board, device.board or built.get("board")}
    if not alike or len(boards) > 1:
        what = f"{built.get('compute_capability')}, {built.get('multiprocessors')} multiprocessors"
        return f"built on {built.get('board') or built.get('gpu')} ({what})"
    spec = manifest.files.get(record.model)
    if spec is None or spec.sha256 != record.model_sha256:
        return f"built from another {record.model} than the bundle's"
    return None


def verify_engine(bundle: str | os.PathLike[str], record: EngineRecord) -> Path:
    """Check that the engine is the one that was built here: an engine is code, and loading a foreign one runs it.

    Returns:
        Its path.

    Raises:
        FileNotFoundError: It is not there.
        ValueError: Its hash is not the record's.
    """
    path = Path(bundle) / ENGINES / record.engine
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, but its record is there; build the engine again")
    if sha256_of(path) != record.sha256:
        raise ValueError(f"{path} is not the engine that its record describes; delete it and build it again")
    return path


def source_file(manifest: Manifest, precision: str, strongly_typed: bool) -> str:
    """Choose the file to build an engine from.

    Args:
        manifest: The bundle's.
        precision: 'fp32', 'fp16' or 'int8'.
        strongly_typed: Whether the engine computes as the file says.

    Raises:
        ValueError: The bundle has no such file; says how to make it.
    """
    target = "any" if precision == "fp32" else "tensorrt" if strongly_typed else "tensorrt-weak"
    for name, spec in manifest.model_files.items():
        if (spec.precision, spec.target) == (precision, target):
            return name
    raise ValueError(
        f"the bundle has no {precision} file for {'strongly' if strongly_typed else 'weakly'} typed engines; it has "
        f"{', '.join(manifest.files)}: on the workstation run tools/quantize.py BUNDLE --target tensorrt --calib DIR"
    )
