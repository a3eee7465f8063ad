"""Tests of deploy.predictor."""

import json

import numpy as np
import pytest

from deploy.io import write_image
from deploy.manifest import load_manifest, save_manifest
from deploy.predictor import Predictor, default_threads

FP32, INT8 = "model.onnx", "model.openvino-int8.onnx"


@pytest.fixture(params=["openvino", "onnxruntime"])
def runtime(request):
    pytest.importorskip(request.param)
    return request.param


def test_predict(runtime, bundle, photo, tiny_model, tmp_path):
    predictor = Predictor(bundle, runtime=runtime, precision="fp32", threads=1)
    prediction = predictor.predict(photo)
    logits = prediction.outputs["logits"]
    tensor, geometry = predictor.preprocess(photo)
    np.testing.assert_allclose(logits, tiny_model(tensor), atol=1e-4)
    assert prediction.geometry == geometry
    assert prediction.class_map is not None and prediction.class_map.shape == photo.shape[:2]
    assert len(np.unique(prediction.class_map)) > 1
    assert set(prediction.timings_ms) == {"preprocess", "infer", "postprocess"}
    assert min(prediction.timings_ms.values()) > 0
    write_image(tmp_path / "p.png", photo)
    np.testing.assert_array_equal(predictor.predict(tmp_path / "p.png").class_map, prediction.class_map)


def test_defaults(bundle, runtime):
    predictor = Predictor(bundle, runtime=runtime)
    assert predictor.filename == (INT8 if runtime == "openvino" else FP32)
    description = predictor.describe()
    assert description["precision"] == ("int8" if runtime == "openvino" else "fp32")
    assert description["threads"] == default_threads()
    assert description["sha256"] == load_manifest(bundle).files[predictor.filename].sha256


def test_a_changed_file_is_refused(bundle):
    data = (bundle / FP32).read_bytes()
    (bundle / FP32).write_bytes(data + b"\x00")
    with pytest.raises(ValueError, match=r"model\.onnx is not the file the manifest describes: expected sha256 "):
        Predictor(bundle, runtime="onnxruntime")


def test_features_have_no_class_map(runtime, bundle, photo):
    values = json.loads((bundle / "model.json").read_text())
    values.update(task="features", classes=[], palette=[])
    values["outputs"][0]["kind"] = "feature"
    (bundle / "model.json").write_text(json.dumps(values))
    prediction = Predictor(bundle, runtime=runtime).predict(photo)
    assert prediction.class_map is None and prediction.outputs["logits"].shape == (1, 5, 12, 16)


def test_a_batch_is_refused(bundle, new_manifest, new_input):
    save_manifest(bundle, new_manifest(input=new_input(shape=(2, 3, 48, 64))))
    with pytest.raises(ValueError, match="takes 2 images at once"):
        Predictor(bundle)
