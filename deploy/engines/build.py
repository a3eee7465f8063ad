"""Building an engine from a model file: one way for every release, and for TensorRT for RTX without a GPU."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.engines.releases import RTX, Release, release_of
from deploy.files import atomic_write

# Nodes of a weakly typed file whose names start so compute in float32: coordinates do not fit into float16.
FLOAT32_PREFIX = "float32/"
Report = Callable[[str, int, int], None]

_LISTEN_EVERY_S = 0.2  # for Ctrl-C while a build runs
_PATIENCE_S = 60.0  # a step of the builder may take that long before it stops


@dataclass(frozen=True)
class BuildRequest:
    """What to build.

    Attributes:
        model: The ONNX file.
        precision: That it was made for: 'fp32', 'fp16' or 'int8'.
        strongly_typed: Compute as the file says; else the builder chooses among the precisions that flags allow.
        workspace_bytes: Most memory that a layer may use beside its tensors; None for the builder's own limit.
        timing_cache: Where timings of kernels are kept between builds; None for nowhere.
        capability: Build ahead of time for this GPU ('sm86'), with TensorRT for RTX; None for the GPU that is there.
    """

    model: Path
    precision: str
    strongly_typed: bool
    workspace_bytes: int | None = None
    timing_cache: Path | None = None
    capability: str | None = None


@dataclass(frozen=True)
class Built:
    """An engine.

    Attributes:
        engine: Serialized.
        seconds: That the build took.
        warnings: Of the builder and of the timing cache.
    """

    engine: bytes
    seconds: float
    warnings: tuple[str, ...]


def make_log(trt: Any) -> Any:
    """Make a logger that keeps warnings and errors in `warnings` and `errors` instead of printing them."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.warnings: list[str] = []
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                self.errors.append(message)
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(message)

    return Log()


def make_monitor(trt: Any, report: Report) -> Any:
    """Make a progress monitor that tells `report` a phase, its steps done and all of them, and can end the build."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}
            self.cancelled = False

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.steps[phase_name] = num_steps

        def phase_finish(self, phase_name: str) -> None:
            self.steps.pop(phase_name, None)

        def step_complete(self, phase_name: str, step: int) -> bool:
            if not self.cancelled:
                report(phase_name, step + 1, self.steps.get(phase_name, step + 1))
            return not self.cancelled

    return Monitor()


def build(trt: Any, request: BuildRequest, report: Report | None = None) -> Built:
    """Build an engine with detailed names of its layers.

    Args:
        trt: The module `tensorrt`, or `tensorrt_rtx` with a request that has a capability.
        request: What to build.
        report: Is told the progress, where the release reports it.

    Raises:
        ValueError: The release cannot build that, or the file cannot be read or built; names the node.
        KeyboardInterrupt: Ctrl-C; nothing was written.
    """
    release = release_of(trt)
    _check(trt, release, request)
    log = make_log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(_creation_flags(trt, release, request))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(request.model)):
        raise ValueError(f"TensorRT {trt.__version__} cannot read {request.model.name}: {_first(parser, release)}")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.clear_flag(trt.BuilderFlag.TF32)  # else products of float32 keep ten bits
    if request.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace_bytes)
    if request.capability is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, request.capability.upper()), 0)
    if not request.strongly_typed:
        _allow(trt, config, network, request.precision)
    notes = [] if request.timing_cache is None else _use_timings(config, request.timing_cache)
    monitor = None
    if release.progress and report is not None and trt.__name__ != RTX:
        monitor = config.progress_monitor = make_monitor(trt, report)
    start = time.perf_counter()
    engine = _interruptible(lambda: builder.build_serialized_network(network, config), monitor)
    seconds = round(time.perf_counter() - start, 1)
    if engine is None:
        reasons = "; ".join(log.errors[-2:]) or "it gives no reason"
        where = "" if request.capability is None else f" for {request.capability}"
        raise ValueError(f"TensorRT {trt.__version__} cannot build {request.model.name}{where}: {reasons}")
    if request.timing_cache is not None:
        with atomic_write(request.timing_cache) as temporary:
            temporary.write_bytes(bytes(config.get_timing_cache().serialize()))
    return Built(bytes(engine), seconds, (*notes, *dict.fromkeys(log.warnings)))


def _interruptible(work: Callable[[], Any], monitor: Any) -> Any:
    """Run a build in a thread of its own, so that Ctrl-C arrives: within TensorRT's callbacks it would be swallowed.

    A release without progress monitor cannot be told to stop; its thread ends with the process.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_LISTEN_EVERY_S)
    except KeyboardInterrupt:
        if monitor is not None:
            monitor.cancelled = True
            thread.join(_PATIENCE_S)
        raise
    if errors:
        raise errors[0]
    return results[0]


def trial_build(trt: Any) -> list[str]:
    """Build an engine of one layer, which says whether TensorRT knows this GPU: a builder alone does not ask.

    Returns:
        Its errors; none if it builds.
    """
    release = release_of(trt)
    log = make_log(trt)
    try:
        builder = trt.Builder(log)
        request = BuildRequest(Path(), "fp32", release.prefers_strong)
        network = builder.create_network(_creation_flags(trt, release, request))
        layer = network.add_identity(network.add_input("x", trt.DataType.FLOAT, (1, 8)))
        network.mark_output(layer.get_output(0))
        engine = builder.build_serialized_network(network, builder.create_builder_config())
    except Exception as error:  # what pybind raises for a failed construction
        return [*log.errors, str(error)]
    return [] if engine is not None else log.errors or ["it gives no reason"]


def _check(trt: Any, release: Release, request: BuildRequest) -> None:
    if request.strongly_typed and not release.strongly_typed:
        raise ValueError(f"TensorRT {trt.__version__} has no strongly typed networks, which came with 10.0")
    if not request.strongly_typed and not release.weakly_typed:
        raise ValueError(f"TensorRT {trt.__version__} has no precision flags any more; build strongly typed")
    if request.capability is None:
        return
    if trt.__name__ != RTX:
        raise ValueError("only TensorRT for RTX builds for a GPU that is not there")
    if not hasattr(trt.ComputeCapability, request.capability.upper()):
        known = [name.lower() for name in dir(trt.ComputeCapability) if name.startswith("SM")]
        raise ValueError(
            f"TensorRT for RTX {trt.__version__} cannot build for '{request.capability}'; it knows {', '.join(known)}"
        )


def _creation_flags(trt: Any, release: Release, request: BuildRequest) -> int:
    kinds = trt.NetworkDefinitionCreationFlag
    flags = 0
    if release.explicit_batch:  # a name that later releases do not have
        flags |= 1 << int(kinds.EXPLICIT_BATCH)
    if request.strongly_typed:
        flags |= 1 << int(kinds.STRONGLY_TYPED)
    return flags


def _first(parser: Any, release: Release) -> str:
    """The parser's first error."""
    if not parser.num_errors:
        return "the parser gives no reason"
    error = parser.get_error(0)
    node = f"node '{error.node_name()}' ({error.node_operator()})" if release.node_names else f"node {error.node()}"
    return f"{node}: {error.desc()}"


def _allow(trt: Any, config: Any, network: Any, precision: str) -> None:
    """Let the builder choose precisions, but not for what makes objects of predictions."""
    if precision == "fp32":
        return
    config.set_flag(trt.BuilderFlag.FP16)
    if precision == "int8":
        config.set_flag(trt.BuilderFlag.INT8)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    floats = (trt.DataType.FLOAT, trt.DataType.HALF)
    kept: set[str] = set()  # tensors that only layers of float32 read so far, from the end on
    others: set[str] = set()
    for layer in reversed([network.get_layer(index) for index in range(network.num_layers)]):
        outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
        names = {tensor.name for tensor in outputs}
        # The parser puts layers of its own in between (shapes, constants): they go with those that read them.
        keep = layer.name.startswith(FLOAT32_PREFIX) or bool(names & kept and not names & others)
        for index in range(layer.num_inputs):
            tensor = layer.get_input(index)
            if tensor is not None:
                (kept if keep else others).add(tensor.name)
        if keep:
            if any(tensor.dtype in floats for tensor in outputs):
                layer.precision = trt.DataType.FLOAT
            for index, tensor in enumerate(outputs):
                if tensor.dtype in floats:
                    layer.set_output_type(index, trt.DataType.FLOAT)


def _use_timings(config: Any, path: Path) -> list[str]:
    """Give the builder the timings of an earlier build; one that it cannot take is replaced."""
    known = path.read_bytes() if path.is_file() else b""
    cache = config.create_timing_cache(known)
    if cache is not None and config.set_timing_cache(cache, False):
        return []
    config.set_timing_cache(config.create_timing_cache(b""), False)
    return [f"{path.name} is from another TensorRT or device, or damaged: kernels are timed anew"]


def show_progress(phase: str, done: int, steps: int) -> None:
    """Print a build's progress on one line of the terminal; nothing where output is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r{phase[:48]:48s} {done:5d} of {steps:5d}", end="" if done < steps else "\n", file=sys.stderr)
