"""What a builder is asked for, release by release: names that a release does not have raise here."""

import os
import signal
import time

import pytest

from deploy.engines.build import FLOAT32_PREFIX, BuildRequest, build
from tests.deploy.engines.stand_in import API, Layer, TensorRT, tensor

STRONG = [version for version in API if version != "8.6.1"]
WEAK = [version for version in API if not version.startswith("11")]


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"the model")
    return tmp_path / "model.onnx"


def named(trt, kind):
    flags = getattr(trt, kind)
    return {name for name in vars(flags) if name.isupper() and getattr(flags, name) in trt.flags}


@pytest.mark.parametrize("version", STRONG)
def test_strongly_typed(version, model):
    trt = TensorRT(version)
    built = build(trt, BuildRequest(model, "int8", True, workspace_bytes=1 << 28))
    assert built.engine == b"the model" and built.warnings == ("a warning",)
    assert trt.creation == 1 << trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    # Precisions stand in the file: no flag may allow others, TF32 least of all.
    assert trt.flags == {("cleared", trt.BuilderFlag.TF32)}
    assert trt.limits == {trt.MemoryPoolType.WORKSPACE: 1 << 28}
    assert trt.config.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
    assert trt.parsed == [str(model)]


@pytest.mark.parametrize("version", WEAK)
@pytest.mark.parametrize(
    ("precision", "flags"),
    [
        ("fp32", set()),
        ("fp16", {"FP16", "OBEY_PRECISION_CONSTRAINTS"}),
        ("int8", {"FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS"}),
    ],
)
def test_weakly_typed(version, precision, flags, model):
    trt = TensorRT(version)
    build(trt, BuildRequest(model, precision, False))
    assert named(trt, "BuilderFlag") == flags
    explicit = 1 << trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH if version == "8.6.1" else 0
    assert trt.creation == explicit
    assert not trt.limits


def test_coordinates_keep_float32_when_the_builder_chooses(model):
    trt = TensorRT("10.3.0")
    real, index = trt.DataType.FLOAT, trt.DataType.INT32
    shared, other = tensor("c", real), tensor("e", real)
    layers = {
        "conv": Layer("conv", [tensor("x", real)], [tensor("a", real)]),
        # Made by the parser: a constant for the decoding, one that both sides read, and a shape.
        "constant": Layer("(Unnamed Layer* 3) [Constant]", [], [shared]),
        "for both": Layer("(Unnamed Layer* 4) [Constant]", [], [other]),
        "shape": Layer("(Unnamed Layer* 5) [Shape]", [tensor("a", real)], [tensor("s", index)]),
        "decode": Layer(
            FLOAT32_PREFIX + "decode", [tensor("a", real), shared, tensor("s", index), other], [tensor("b", real)]
        ),
        "pick": Layer(FLOAT32_PREFIX + "pick", [tensor("b", real)], [tensor("i", index), tensor("v", real)]),
        "softmax": Layer("softmax", [tensor("a", real), other], [tensor("d", real)]),
    }
    trt.layers = list(layers.values())
    build(trt, BuildRequest(model, "int8", False))
    kept = {name for name, layer in layers.items() if getattr(layer, "precision", None) == real}
    assert kept == {"constant", "decode", "pick"}
    assert layers["pick"].output_types == {1: real} and layers["decode"].output_types == {0: real}
    assert not layers["shape"].output_types and not layers["softmax"].output_types


@pytest.mark.parametrize("version", API)
def test_timings_are_kept_and_foreign_ones_replaced(version, model, tmp_path):
    strong, timings = version != "8.6.1", tmp_path / "orin.timings"
    trt = TensorRT(version)
    assert build(trt, BuildRequest(model, "fp32", strong, timing_cache=timings)).warnings == ("a warning",)
    assert trt.timings == b"" and timings.read_bytes() == b"timings"
    build(trt, BuildRequest(model, "fp32", strong, timing_cache=timings))
    assert trt.timings == b"timings"
    timings.write_bytes(b"foreign")
    notes = build(trt, BuildRequest(model, "fp32", strong, timing_cache=timings)).warnings
    assert "kernels are timed anew" in notes[0] and trt.timings == b"" and timings.read_bytes() == b"timings"


@pytest.mark.parametrize("version", API)
def test_what_cannot_be_read_or_built(version, model):
    strong = version != "8.6.1"
    node = "node 'odd' \\(Odd\\)" if strong else "node 7"
    with pytest.raises(ValueError, match=f"TensorRT {version} cannot read model.onnx: {node}: no importer"):
        build(TensorRT(version, fails="parse"), BuildRequest(model, "fp32", strong))
    with pytest.raises(ValueError, match="cannot build model.onnx: no implementation for node fc1"):
        build(TensorRT(version, fails="build"), BuildRequest(model, "fp32", strong))


def test_typing_that_a_release_does_not_have(model):
    with pytest.raises(ValueError, match="TensorRT 8.6.1 has no strongly typed networks"):
        build(TensorRT("8.6.1"), BuildRequest(model, "int8", True))
    with pytest.raises(ValueError, match="TensorRT 11.4.0.106 has no precision flags any more"):
        build(TensorRT("11.4.0.106"), BuildRequest(model, "int8", False))
    with pytest.raises(ValueError, match="only TensorRT for RTX builds for a GPU that is not there"):
        build(TensorRT("10.3.0"), BuildRequest(model, "int8", True, capability="sm86"))


@pytest.mark.parametrize("version", STRONG)
def test_progress_is_told_and_ctrl_c_ends_a_build(version, model, tmp_path):
    seen = []
    build(TensorRT(version), BuildRequest(model, "fp32", True), lambda *step: seen.append(step))
    assert seen == [("Building Engine", done, 3) for done in (1, 2, 3)]

    told = []

    def press(phase, done, steps):
        told.append(done)
        os.kill(os.getpid(), signal.SIGINT)  # arrives in the main thread, wherever that is
        time.sleep(0.5)

    timings = tmp_path / "t.timings"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    with pytest.raises(KeyboardInterrupt):
        build(TensorRT(version), BuildRequest(model, "fp32", True, timing_cache=timings), press)
    signal.signal(signal.SIGINT, before)
    assert not timings.exists() and told == [1], "the builder is told to stop after the step"


def test_the_interface_of_tensorrt_for_rtx():
    """The real module has what a strongly typed build uses; engines of it are built in tests/quant."""
    trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
    used = {
        "Builder": ("create_network", "create_builder_config", "build_serialized_network"),
        "OnnxParser": ("parse_from_file", "num_errors", "get_error"),
        "ParserError": ("node_name", "node_operator", "desc"),
        "IBuilderConfig": ("profiling_verbosity", "clear_flag", "set_memory_pool_limit", "progress_monitor"),
    }
    for kind, members in used.items():
        assert set(members) <= set(API["11.4.0.106"][kind]) & set(dir(getattr(trt, kind))), kind
    assert trt.ILogger.WARNING > trt.ILogger.ERROR
