"""Whether TensorRT can build a model file, tried on a machine without a GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.engines.build import BuildRequest, build

CAPABILITIES = ("sm80", "sm86", "sm89", "sm120")


@dataclass(frozen=True)
class EngineCheck:
    """An engine that was built, and thrown away.

    Args:
        file: Name of the model file.
        sha256: Hash of the model file.
        built_with: The builder and its version.
        capability: The GPU it was built for.
        engine_bytes: Size of the engine.
        seconds: Time of the build.
    """

    file: str
    sha256: str
    built_with: str
    capability: str
    engine_bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For the receipt."""
        return asdict(self)


def check_engine(path: Path, sha256: str, precision: str, capability: str = "sm86") -> EngineCheck:
    """Builds a strongly typed engine ahead of time with TensorRT for RTX, which shares TensorRT's parser.

    The code is that of the device, :mod:`deploy.engines.build`.

    It proves that the file parses and that every layer has an implementation of its stated precision on the GPU asked
    for. It proves neither speed nor accuracy there, nor anything about weakly typed engines, and the engine is not one
    for a Jetson: Ampere SM86 is the nearest to Orin's SM87 that can be built without the device.

    Args:
        path: An ONNX file with its precisions written out.
        sha256: Its hash.
        precision: That it was made for.
        capability: One of :data:`CAPABILITIES`. Defaults to 'sm86'.

    Raises:
        ImportError: TensorRT for RTX is not installed.
        ValueError: It cannot be parsed or built; names the node.
    """
    try:
        import tensorrt_rtx as trt
    except ImportError as error:
        raise ImportError(
            f"checking engines needs TensorRT for RTX ({error}): pip install 'vitdense[tensorrt-check]'"
        ) from None
    built = build(trt, BuildRequest(path, precision, strongly_typed=True, capability=capability))
    version = f"tensorrt_rtx {trt.__version__}"
    return EngineCheck(path.name, sha256, version, capability, len(built.engine), built.seconds)
