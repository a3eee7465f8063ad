"""Tests of deploy.reference."""

import numpy as np
import pytest

from deploy.predictor import Predictor
from deploy.reference import Reference, check_reference, load_reference, relative_error, save_reference

FP32 = "model.onnx"


class FakeRuntime:
    """Returns what it was built with."""

    name = "fake"

    def __init__(self, **outputs):
        self.outputs = outputs

    def __call__(self, tensor):
        return self.outputs

    def describe(self):
        return {}


def _reference(**outputs):
    return Reference((np.zeros(1),), {FP32: {name: (value,) for name, value in outputs.items()}}, {FP32: 0.1})


def test_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    inputs = tuple(rng.normal(size=(1, 3, 4, 6)).astype(np.float32) for _ in range(12))
    outputs = {
        "model.onnx": {"/head/out": tuple(rng.normal(size=(1, 2)) for _ in inputs)},
        "model.openvino-int8.onnx": {"/head/out": tuple(rng.normal(size=(1, 2)) for _ in inputs)},
    }
    tolerances = {"model.onnx": 1e-4, "model.openvino-int8.onnx": 0.05}
    save_reference(tmp_path, Reference(inputs, outputs, tolerances))
    with np.load(tmp_path / "reference.npz") as archive:
        assert {"input_0", "input_11", "model.onnx//head/out/3", "tolerance/model.onnx"} <= set(archive.files)
    loaded = load_reference(tmp_path)
    assert loaded.tolerances == tolerances
    np.testing.assert_array_equal(loaded.inputs, inputs)
    for filename, named in outputs.items():
        np.testing.assert_array_equal(loaded.outputs[filename]["/head/out"], named["/head/out"])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_sound_device_passes(bundle, runtime, precision, request):
    pytest.importorskip(runtime)
    if (runtime, precision) == ("openvino", "int8"):
        request.getfixturevalue("exact_int8")
    predictor = Predictor(bundle, runtime=runtime, precision=precision, threads=1)
    check = check_reference(predictor.runtime, load_reference(bundle), predictor.filename)
    assert check.passed and 0 <= check.error <= check.tolerance and check.output == "logits"


def test_the_largest_error_counts():
    reference = _reference(a=np.array([0.0, 10.0]), b=np.array([1.0, 2.0]))
    check = check_reference(FakeRuntime(a=np.array([0.5, 10.0]), b=np.array([1.0, 2.5])), reference, FP32)
    assert check.output == "b" and check.error == pytest.approx(0.25) and not check.passed
    check = check_reference(FakeRuntime(a=np.array([0.5, 10.0]), b=np.array([1.0, 2.0])), reference, FP32)
    assert check.output == "a" and check.error == pytest.approx(0.05) and check.passed


def test_nan_and_other_shapes_fail():
    reference = _reference(a=np.array([0.0, 10.0]), b=np.array([1.0, 2.0]))
    check = check_reference(FakeRuntime(a=np.array([np.nan, 10.0]), b=np.array([1.0, 2.0])), reference, FP32)
    assert np.isnan(check.error) and not check.passed
    check = check_reference(FakeRuntime(a=np.array([0.0, 10.0]), b=np.array([1.0])), reference, FP32)
    assert check.error == float("inf") and not check.passed


def test_relative_error():
    assert relative_error(np.array([1.0, 4.0]), np.array([1.0, -5.0])) == pytest.approx(9 / 5)
    assert relative_error(np.zeros(3), np.zeros(3)) == 0
    assert relative_error(np.ones(3), np.zeros(3)) == float("inf")
    assert relative_error(np.array([250], np.uint8), np.array([251], np.uint8)) == pytest.approx(1 / 251)


def test_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="export the bundle again"):
        load_reference(tmp_path)
    (tmp_path / "reference.npz").write_bytes(b"PK broken")
    with pytest.raises(ValueError, match=r"reference\.npz is not a bundle's reference"):
        load_reference(tmp_path)
    np.savez(tmp_path / "reference.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"reference\.npz is not a bundle's reference"):
        load_reference(tmp_path)
    with pytest.raises(ValueError, match=r"no outputs of x\.onnx; it has \['model\.onnx'\]"):
        check_reference(FakeRuntime(), _reference(a=np.zeros(1)), "x.onnx")
    with pytest.raises(ValueError, match="output 'a' of model.onnx"):
        check_reference(FakeRuntime(b=np.zeros(1)), _reference(a=np.zeros(1)), FP32)
    with pytest.raises(ValueError, match="holds no input"):
        Reference((), {}, {})
    with pytest.raises(ValueError, match="but tolerances for"):
        Reference((np.zeros(1),), {FP32: {}}, {})
    with pytest.raises(ValueError, match="2 arrays of model.onnx's output 'a' for 1 inputs"):
        Reference((np.zeros(1),), {FP32: {"a": (np.zeros(1), np.zeros(1))}}, {FP32: 0.1})
