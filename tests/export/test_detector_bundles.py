"""Trained detectors through the export command: static files whose objects are those of MMDetection."""

import json

import cv2
import pytest

MODELS = ["vit48_gfl_bccd"]


@pytest.fixture(scope="module", params=MODELS)
def bundle(request, run_tool, tmp_path_factory, data_root):
    """Bundle of a fixture, exported on eight images of blood cells, and what the command printed."""
    out = tmp_path_factory.mktemp("detector") / request.param
    config, weights = f"configs/fixtures/{request.param}.py", f"weights/{request.param}.safetensors"
    result = run_tool("tools/export.py", config, weights, "--out", out, "--shape", 256, 320)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return out, result.stdout


def test_the_file_finds_what_mmdetection_finds(bundle):
    out, printed = bundle
    receipt = json.loads((out / "receipt.json").read_text())
    for parity in receipt["parity"]["runtimes"]:
        found = parity["detections"]
        assert found["matched"] >= 0.995 * max(found["eager"], found["exported"]) and found["eager"] >= 100
    assert "of MMDetection" in printed


def test_the_device_side_draws_and_lists_objects(bundle, run_tool, data_root, tmp_path):
    out, _ = bundle
    names = (data_root / "bccd/ImageSets/Main/test.txt").read_text().split()[:3]
    images = [data_root / f"bccd/JPEGImages/{name}.jpg" for name in names]
    result = run_tool("-m", "deploy.predict", out, *images, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "predictions.json").read_text())
    for record, path in zip(report["images"], images, strict=True):
        objects = record["objects"]
        assert record["exact"] and len(objects) >= 5 and {item["class"] for item in objects} & {"RBC", "WBC"}
        assert all(item["score"] >= 0.3 for item in objects)
        photo, picture = cv2.imread(str(path)), cv2.imread(str(tmp_path / record["files"]["overlay"]))
        assert picture.shape == photo.shape and (picture != photo).any(axis=2).mean() > 0.02
    assert "RBC" in result.stdout
    few = run_tool("-m", "deploy.predict", out, images[0], "--out", tmp_path / "few", "--score", 0.7)
    assert few.returncode == 0
    chosen = json.loads((tmp_path / "few/predictions.json").read_text())["images"][0]["objects"]
    assert len(chosen) < len(report["images"][0]["objects"]) and all(item["score"] >= 0.7 for item in chosen)


def test_the_reference_holds_on_this_machine(bundle, run_tool):
    result = run_tool("-m", "deploy.bench", bundle[0], "--check")
    assert result.returncode == 0, result.stdout + result.stderr
