"""Tests of deploy.runtimes: a real ONNX graph on each runtime, against numpy."""

import sys

import numpy as np
import pytest

from deploy.runtimes import create_runtime
from deploy.runtimes.base import Port, check_ports


@pytest.fixture(params=["openvino", "onnxruntime"])
def name(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture
def model(tmp_path, tiny_model):
    path = tmp_path / "modèle.onnx"
    tiny_model.save(path)
    return path


def _tensor(spec, seed=0):
    return np.random.default_rng(seed).normal(size=spec.shape).astype(np.float32)


def test_fp32_equals_numpy(name, model, tiny_model, new_input, new_output):
    spec = new_input()
    runtime = create_runtime(name, model, spec, [new_output()], threads=1)
    tensor = _tensor(spec)
    outputs = runtime(tensor)
    assert list(outputs) == ["logits"]
    np.testing.assert_allclose(outputs["logits"], tiny_model(tensor), atol=1e-5)
    kept = outputs["logits"].copy()
    runtime(_tensor(spec, 1))
    np.testing.assert_array_equal(outputs["logits"], kept)  # a later call does not overwrite


def test_int8_equals_the_quantized_formula(name, tmp_path, tiny_model, new_input, new_output, request):
    if name == "openvino":
        request.getfixturevalue("exact_int8")
    spec = new_input()
    tiny_model.save(tmp_path / "q.onnx", int8=True)
    runtime = create_runtime(name, tmp_path / "q.onnx", spec, [new_output()], threads=1)
    tensor = np.clip(_tensor(spec), -3, 3)
    expected = tiny_model.quantized(tensor)
    assert np.abs(runtime(tensor)["logits"] - expected).max() <= 1e-2 * np.abs(expected).max()


def test_uint8_input(name, tmp_path, tiny_model, new_input, new_output):
    spec = new_input(dtype="uint8", normalize_in_graph=True)
    tiny_model.save(tmp_path / "u.onnx", dtype="uint8")
    tensor = np.random.default_rng(0).integers(0, 256, spec.shape, dtype=np.uint8)
    outputs = create_runtime(name, tmp_path / "u.onnx", spec, [new_output()], threads=1)(tensor)
    normal = (tensor - np.reshape(spec.mean, (1, 3, 1, 1))) / np.reshape(spec.std, (1, 3, 1, 1))
    np.testing.assert_allclose(outputs["logits"], tiny_model(normal), atol=1e-4)


def test_describe_reads_back_what_was_set(name, model, new_input, new_output):
    description = create_runtime(name, model, new_input(), [new_output()], threads=2).describe()
    assert description["runtime"] == name and description["threads"] == 2
    assert description["version"] and description["device"]


def test_openvino_runs_floats_in_fp32_and_quantized_operations_in_int8(
    tmp_path, model, tiny_model, new_input, new_output
):
    pytest.importorskip("openvino")
    tiny_model.save(tmp_path / "q.onnx", int8=True)
    description = [
        create_runtime("openvino", path, new_input(), [new_output()], threads=1).describe()
        for path in (model, tmp_path / "q.onnx")
    ]
    assert [item["float_precision"] for item in description] == ["float32", "float32"]
    assert description[0]["streams"] == 1 and description[0]["performance_hint"] == "LATENCY"
    assert set(description[0]["operations"]) == {"f32"}
    assert description[1]["operations"].keys() & {"u8", "i8"}


def test_onnxruntime_names_its_provider(model, new_input, new_output):
    pytest.importorskip("onnxruntime")
    description = create_runtime("onnxruntime", model, new_input(), [new_output()], threads=1).describe()
    assert description["providers"] == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "tensor",
    [
        np.zeros((1, 3, 48, 63), np.float32),
        np.zeros((3, 48, 64), np.float32),
        np.zeros((1, 3, 48, 64)),
        np.zeros((1, 3, 48, 64), np.uint8),
    ],
)
def test_a_wrong_tensor_is_refused(name, model, tensor, new_input, new_output):
    runtime = create_runtime(name, model, new_input(), [new_output()], threads=1)
    with pytest.raises(ValueError, match=r"input 'image' got .*; expected float32 \[1, 3, 48, 64\]"):
        runtime(tensor)


@pytest.mark.parametrize(
    ("input_changes", "output_changes", "message"),
    [
        ({"name": "x"}, {}, r"no input 'x' as the manifest says; it has \['image'\]"),
        ({}, {"name": "y"}, r"no output 'y' as the manifest says; it has \['logits'\]"),
        ({"shape": (1, 3, 48, 96)}, {}, r"input 'image' is float32 \[1, 3, 48, 64\], but the manifest says"),
        ({"dtype": "uint8", "normalize_in_graph": True}, {}, r"manifest says uint8"),
        ({}, {"shape": (1, 5, 48, 64)}, r"output 'logits' is float32 \[1, 5, 12, 16\]"),
        ({}, {"dtype": "float16"}, r"manifest says float16"),
    ],
)
def test_a_file_that_differs_from_the_manifest_is_refused(
    name, model, new_input, new_output, input_changes, output_changes, message
):
    with pytest.raises(ValueError, match=message):
        create_runtime(name, model, new_input(**input_changes), [new_output(**output_changes)], threads=1)


def test_dynamic_shapes_and_second_inputs_are_refused(new_input, new_output):
    image = Port(frozenset(["image"]), (None, 3, 48, 64), "float32")
    with pytest.raises(ValueError, match=r"\[None, 3, 48, 64\], but the manifest says"):
        check_ports("m.onnx", [image], [], new_input(), [new_output()])
    with pytest.raises(ValueError, match="has 2 inputs"):
        check_ports("m.onnx", [image, image], [], new_input(), [new_output()])


def test_a_file_that_is_no_model(name, tmp_path, new_input, new_output):
    (tmp_path / "bad.onnx").write_bytes(b"not a protobuf")
    with pytest.raises(ValueError, match=r"cannot (read|load|compile) .*bad\.onnx"):
        create_runtime(name, tmp_path / "bad.onnx", new_input(), [new_output()], threads=1)


@pytest.mark.parametrize("threads", [0, -1, 1.5])
def test_threads_are_checked(name, model, threads, new_input, new_output):
    with pytest.raises(ValueError, match="threads is .*expected an integer of 1 or more"):
        create_runtime(name, model, new_input(), [new_output()], threads=threads)


def test_unknown_runtime_and_missing_file(tmp_path, model, new_input, new_output):
    with pytest.raises(ValueError, match="runtime is 'tvm'; expected one of 'openvino', 'onnxruntime'"):
        create_runtime("tvm", model, new_input(), [new_output()], threads=1)
    with pytest.raises(FileNotFoundError, match=r"no model file .*none\.onnx"):
        create_runtime("onnxruntime", tmp_path / "none.onnx", new_input(), [new_output()], threads=1)


@pytest.mark.parametrize("absent", ["openvino", "onnxruntime"])
def test_a_runtime_that_is_not_installed(absent, monkeypatch, model, new_input, new_output):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=f"pip install {absent}"):
        create_runtime(absent, model, new_input(), [new_output()], threads=1)


def test_a_folder_called_openvino_is_not_the_runtime(tmp_path, monkeypatch, model, new_input, new_output):
    (tmp_path / "elsewhere" / "openvino").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere")])
    for module in [key for key in sys.modules if key.partition(".")[0] == "openvino"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "openvino", None)  # what is imported here goes with the test
    del sys.modules["openvino"]
    with pytest.raises(ImportError, match="is not the runtime; run: pip install openvino"):
        create_runtime("openvino", model, new_input(), [new_output()], threads=1)


def test_a_silent_fallback_of_the_provider_is_an_error(monkeypatch, model, new_input, new_output):
    ort = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(ort.InferenceSession, "get_providers", lambda self: ["OtherExecutionProvider"])
    with pytest.raises(ValueError, match="OtherExecutionProvider.*although"):
        create_runtime("onnxruntime", model, new_input(), [new_output()], threads=1)


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_a_provider_that_this_build_lacks_is_an_error(name, model, new_input, new_output):
    """With the real ONNX Runtime, which warns and takes the CPU instead."""
    ort = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(ValueError, match=r"runs on \['CPUExecutionProvider'\] although .*onnxruntime-gpu"):
        create_runtime(name, model, new_input(), [new_output()], threads=1)
