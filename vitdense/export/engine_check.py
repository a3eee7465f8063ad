"""Whether TensorRT can build a model file, tried on a machine without a GPU."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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


def check_engine(path: Path, sha256: str, capability: str = "sm86") -> EngineCheck:
    """Builds a strongly typed engine ahead of time with TensorRT for RTX, which shares TensorRT's parser.

    It proves that the file parses and that every layer has an implementation of its stated precision on the GPU asked
    for. It proves neither speed nor accuracy there, nor anything about weakly typed engines, and the engine is not one
    for a Jetson: Ampere SM86 is the nearest to Orin's SM87 that can be built without the device.

    Args:
        path: An ONNX file with its precisions written out.
        sha256: Its hash.
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

    if not hasattr(trt.ComputeCapability, capability.upper()):
        known = ", ".join(name.lower() for name in CAPABILITIES if hasattr(trt.ComputeCapability, name.upper()))
        raise ValueError(f"TensorRT for RTX {trt.__version__} cannot build for '{capability}'; it knows {known}")

    class Log(trt.ILogger):  # type: ignore[misc]
        """Keeps what goes wrong."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.errors.append(message)

    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(path)):
        first = parser.get_error(0)
        raise ValueError(
            f"TensorRT cannot read {path.name}: node '{first.node_name()}' ({first.node_operator()}): {first.desc()}"
        )
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, capability.upper()), 0)
    start = time.perf_counter()
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise ValueError(f"TensorRT cannot build {path.name} for {capability}: " + "; ".join(log.errors[-2:]))
    seconds = round(time.perf_counter() - start, 1)
    return EngineCheck(path.name, sha256, f"tensorrt_rtx {trt.__version__}", capability, int(engine.nbytes), seconds)
