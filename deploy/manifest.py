"""The manifest of a bundle, `model.json`: everything a device needs to know about the model files beside it."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from deploy.files import sha256_of, write_json
from deploy.specs import (
    DETECTION_KINDS,
    MASK_KINDS,
    PRECISIONS,
    FileSpec,
    InputSpec,
    OutputSpec,
    check_choice,
    check_file_name,
    finite_float,
)

__all__ = [
    "MANIFEST_NAME",
    "PRECISIONS",
    "SCHEMA_VERSION",
    "TASKS",
    "FileSpec",
    "InputSpec",
    "Manifest",
    "OutputSpec",
    "load_manifest",
    "save_manifest",
    "sha256_of",
]

SCHEMA_VERSION = 1
MANIFEST_NAME = "model.json"
TASKS = ("segmentation", "detection", "instance_segmentation", "features")
# Which files a runtime may be given, the preferred target first. ONNX Runtime takes the Q/DQ file made for OpenVINO:
# it is slower there, which makes it a check of portability and not a default. TensorRT's run there as well.
RUNTIME_TARGETS: Mapping[str, tuple[str, ...]] = {
    "openvino": ("openvino", "any"),
    "onnxruntime": ("any", "openvino", "tensorrt", "tensorrt-weak"),
    "onnxruntime-cuda": ("any", "tensorrt", "tensorrt-weak"),
    "onnxruntime-tensorrt": ("tensorrt", "tensorrt-weak", "any"),
    "torch": ("torch",),
}
DEFAULT_PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "openvino": ("int8", "fp32"),
    "onnxruntime": ("fp32",),
    "onnxruntime-cuda": ("fp16", "fp32"),
    "onnxruntime-tensorrt": ("int8", "fp16", "fp32"),
    "torch": ("fp32",),
}

_Spec = TypeVar("_Spec", InputSpec, OutputSpec, FileSpec)


@dataclass(frozen=True)
class Manifest:
    """What `model.json` says.

    Attributes:
        task: 'segmentation', 'detection', 'instance_segmentation' or 'features'.
        input: The image input.
        outputs: At least one; a segmentation model has exactly one of kind 'logits' with a channel per class, a
            detector one of each kind that its task needs, see `OutputSpec`.
        files: File name to what it is; hashes of every model file.
        classes: Class names, by index.
        palette: One (R, G, B) per class.
        thresholds: Named score thresholds (0 to 1 by convention).
        source: Where the model came from: config, checkpoint and its sha256, the backbone's provenance.
        tools: Package name to version, as used on the workstation.
        calibration: Name of a quantized file to the record of its calibration.
        schema_version: Of this format.

    Raises:
        ValueError: A value is out of its range, or two contradict each other.
    """

    task: str
    input: InputSpec
    outputs: tuple[OutputSpec, ...]
    files: dict[str, FileSpec]
    classes: tuple[str, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()
    thresholds: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    calibration: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION or isinstance(self.schema_version, bool):
            raise ValueError(
                f"manifest schema_version is {self.schema_version!r}; this version of deploy reads {SCHEMA_VERSION}: "
                "export the bundle again, or use the deploy folder of the version that wrote it"
            )
        check_choice("manifest task", self.task, TASKS)
        for name in ("classes", "palette", "outputs"):
            value = getattr(self, name)
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise ValueError(f"manifest {name} is {value!r}; expected a list")
            object.__setattr__(self, name, tuple(value))
        self._check_maps()
        self._check_classes()
        self._check_outputs()
        self._check_files()

    def _check_maps(self) -> None:
        for name in ("files", "thresholds", "source", "tools", "calibration"):
            value = getattr(self, name)
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                raise ValueError(f"manifest {name} is {value!r}; expected a mapping with string keys")
        for name, value in self.thresholds.items():
            finite_float(f"manifest threshold {name!r}", value)
        for name, value in self.tools.items():
            if not isinstance(value, str):
                raise ValueError(f"manifest tools[{name!r}] is {value!r}; expected a version as a string")

    def _check_classes(self) -> None:
        if not all(isinstance(name, str) for name in self.classes):
            raise ValueError(f"manifest classes are {list(self.classes)!r}; expected a list of names")
        if len(self.palette) != len(self.classes):
            raise ValueError(f"manifest has {len(self.classes)} classes but {len(self.palette)} palette colours")
        colours = []
        for name, colour in zip(self.classes, self.palette, strict=True):
            values = tuple(colour) if isinstance(colour, Sequence) else ()
            if len(values) != 3 or not all(isinstance(value, int) and 0 <= value <= 255 for value in values):
                raise ValueError(f"manifest palette colour of {name!r} is {colour!r}; expected [R, G, B] of 0 to 255")
            colours.append(values)
        object.__setattr__(self, "palette", tuple(colours))

    def _check_outputs(self) -> None:
        names = [output.name for output in self.outputs]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"manifest outputs are {names}; expected at least one, each with its own name")
        if self.task in ("detection", "instance_segmentation"):
            self._check_detection()
        if self.task != "segmentation":
            return
        logits = [output for output in self.outputs if output.kind == "logits"]
        if len(logits) != 1 or len(logits[0].shape) != 4 or logits[0].shape[1] != len(self.classes):
            raise ValueError(
                f"a segmentation manifest needs one output of kind 'logits' and shape [N, {len(self.classes)}, h, w] "
                f"for its {len(self.classes)} classes; got {[list(output.shape) for output in logits]}"
            )

    def _check_detection(self) -> None:
        kinds = [output.kind for output in self.outputs]
        masks = [kind for kind in kinds if kind in MASK_KINDS]
        wanted = 1 if self.task == "instance_segmentation" else 0
        if sorted(kinds) != sorted([*DETECTION_KINDS, *masks]) or len(masks) != wanted or not self.classes:
            raise ValueError(
                f"a manifest of task {self.task!r} needs classes and one output of each kind {list(DETECTION_KINDS)}"
                + (f" and one of {list(MASK_KINDS)}" if wanted else "")
                + f"; got {len(self.classes)} classes and {kinds}"
            )

    def _check_files(self) -> None:
        if not self.files:
            raise ValueError("manifest lists no files; expected at least one model file")
        for name, spec in self.files.items():
            check_file_name("manifest file name", name)
            for external in spec.external_data:
                if external not in self.files:
                    raise ValueError(f"manifest file {name!r} has external data {external!r} that files does not list")
        for name in self.calibration:
            if name not in self.files:
                raise ValueError(f"manifest calibration names {name!r}, which is not among {sorted(self.files)}")

    @property
    def model_files(self) -> dict[str, FileSpec]:
        """The files that can be run: all but the external data of another."""
        external = {name for spec in self.files.values() for name in spec.external_data}
        return {name: spec for name, spec in self.files.items() if name not in external}

    def select(self, runtime: str, precision: str | None = None, target: str | None = None) -> str:
        """Choose the model file for a runtime.

        Args:
            runtime: A key of `RUNTIME_TARGETS`.
            precision: 'fp32', 'fp16' or 'int8'. Defaults to the runtime's preference among what exists: int8 before
                fp32 for OpenVINO, fp32 for ONNX Runtime; with a target, the lowest that there is for it.
            target: What the file was made for. Defaults to the runtime's preference.

        Returns:
            The file's name.

        Raises:
            ValueError: The runtime is unknown, does not run files of that target, or no file has that precision; says
                what exists.
        """
        check_choice("runtime", runtime, tuple(RUNTIME_TARGETS))
        if target is not None:
            check_choice(f"target of a file for {runtime}", target, RUNTIME_TARGETS[runtime])
        preferred = DEFAULT_PRECISIONS[runtime] if target is None else PRECISIONS[::-1]
        for wanted in preferred if precision is None else (precision,):
            for kind in RUNTIME_TARGETS[runtime] if target is None else (target,):
                for name, spec in self.model_files.items():
                    if spec.precision == wanted and spec.target == kind:
                        return name
        existing = ", ".join(f"{name} ({spec.precision}, for {spec.target})" for name, spec in self.model_files.items())
        asked = f"precision {precision!r}" if precision is not None else "a precision it runs by default"
        made_for = f" made for {target}" if target is not None else ""
        raise ValueError(f"the bundle has no file{made_for} with {asked} for {runtime}; it has {existing}")

    def verify(self, bundle_dir: str | os.PathLike[str], filename: str) -> None:
        """Check the hash of a model file and of its external data.

        Args:
            bundle_dir: The bundle's folder.
            filename: A key of `files`.

        Raises:
            ValueError: The manifest does not list the file, or its hash differs.
            FileNotFoundError: The file is not in the folder.
        """
        if filename not in self.files:
            raise ValueError(f"the manifest lists no file {filename!r}; it has {', '.join(sorted(self.files))}")
        for name in (filename, *self.files[filename].external_data):
            path = Path(bundle_dir) / name
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing, but the manifest lists it; copy the bundle again")
            expected, found = self.files[name].sha256, sha256_of(path)
            if found != expected:
                raise ValueError(
                    f"{path} is not the file the manifest describes: expected sha256 {expected}, found {found}; "
                    "copy the bundle again, or export it again if the file was changed on purpose"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return what `model.json` holds, the schema version first."""
        fields = dataclasses.asdict(self)
        return {"schema_version": fields.pop("schema_version"), **fields}


def _check_fields(what: str, cls: type, values: Any) -> dict[str, Any]:
    """Return `values` if its keys are the fields of dataclass `cls`, all required ones among them."""
    if not isinstance(values, dict):
        raise ValueError(f"{what} is {type(values).__name__}; expected an object")
    fields = {item.name: item for item in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(fields))
    required = {
        name
        for name, item in fields.items()
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    missing = sorted(required - set(values))
    if unknown or missing:
        parts = [f"unknown fields {unknown}"] * bool(unknown) + [f"missing fields {missing}"] * bool(missing)
        raise ValueError(f"{what} has {' and '.join(parts)}")
    return values


def _spec(what: str, cls: type[_Spec], values: Any) -> _Spec:
    return cls(**_check_fields(what, cls, values))


def manifest_from_dict(values: Any) -> Manifest:
    """Build a manifest from what `model.json` holds.

    Raises:
        ValueError: A field is unknown, missing or wrong; it is named.
    """
    if isinstance(values, dict) and values.get("schema_version") != SCHEMA_VERSION:
        # Before the fields: another version may have others, and the version is then what explains them.
        raise ValueError(
            f"schema_version is {values.get('schema_version')!r}; this version of deploy reads {SCHEMA_VERSION}: "
            "export the bundle again, or use the deploy folder of the version that wrote it"
        )
    checked = dict(_check_fields("the manifest", Manifest, values))
    if not isinstance(checked["outputs"], list) or not isinstance(checked["files"], dict):
        raise ValueError("the manifest's outputs must be a list and its files an object")
    checked["input"] = _spec("input", InputSpec, checked["input"])
    checked["outputs"] = [_spec(f"output {i}", OutputSpec, item) for i, item in enumerate(checked["outputs"])]
    checked["files"] = {name: _spec(f"file {name!r}", FileSpec, item) for name, item in checked["files"].items()}
    return Manifest(**checked)


def load_manifest(bundle_dir: str | os.PathLike[str]) -> Manifest:
    """Read and check the manifest of a bundle.

    Args:
        bundle_dir: The bundle's folder.

    Returns:
        The manifest. Hashes are not checked here; see `Manifest.verify`.

    Raises:
        FileNotFoundError: There is no such folder, or no `model.json` in it.
        ValueError: It is not JSON, of another schema version, or a field is unknown, missing or wrong.
    """
    folder = Path(bundle_dir)
    path = folder / MANIFEST_NAME
    if not folder.exists():
        raise FileNotFoundError(f"there is no bundle folder {folder}; give the folder that tools/export.py wrote")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; expected the bundle's folder, which holds {MANIFEST_NAME}")
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {MANIFEST_NAME}; give the folder that tools/export.py wrote")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); copy or export the bundle again") from error
    try:
        return manifest_from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_manifest(bundle_dir: str | os.PathLike[str], manifest: Manifest) -> None:
    """Write the manifest into a bundle's folder, replacing an older one atomically.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: `source` or `calibration` hold something JSON cannot express.
    """
    write_json(Path(bundle_dir) / MANIFEST_NAME, manifest.to_dict())
