"""Tests of the command `python -m deploy.predict`."""

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from deploy.io import read_image, write_image
from deploy.predict import main, unique_stems
from deploy.predictor import Predictor

pytest.importorskip("onnxruntime")
ORT = ("--runtime", "onnxruntime", "--threads", "1")


def _assert_mistake(result, message):
    assert result.returncode == 2, result.stderr
    assert message in result.stderr and "error: " in result.stderr
    assert "Traceback" not in result.stderr


def test_segmentation(bundle, photos, tmp_path, run_module):
    out = tmp_path / "new" / "out"
    result = run_module("deploy.predict", bundle, photos, "--out", out, *ORT)
    assert result.returncode == 0, result.stderr
    names = ["a_mask.png", "a_overlay.png", "b_mask.png", "b_overlay.png", "predictions.json"]
    assert sorted(p.name for p in out.iterdir()) == names
    assert "2 of 2 images done" in result.stdout and "61x83" in result.stdout
    assert "model.onnx (fp32) on onnxruntime" in result.stdout and "1 threads" in result.stdout

    image = read_image(photos / "a.png")
    mask = cv2.imread(str(out / "a_mask.png"), cv2.IMREAD_UNCHANGED)
    expected = Predictor(bundle, runtime="onnxruntime", threads=1).predict(image)
    np.testing.assert_array_equal(mask, expected.class_map)
    assert read_image(out / "a_overlay.png").shape[0] > image.shape[0]  # the legend

    report = json.loads((out / "predictions.json").read_text())
    assert report["model"]["file"] == "model.onnx" and report["model"]["threads"] == 1
    assert report["failed"] == []
    record = report["images"][0]
    assert record["size"] == [61, 83] and record["files"] == {"overlay": "a_overlay.png", "mask": "a_mask.png"}
    assert sum(record["shares"].values()) == pytest.approx(1)
    assert list(record["shares"].values()) == sorted(record["shares"].values(), reverse=True)
    assert record["shares"].get("sky", 0) == pytest.approx((mask == 0).mean())
    assert set(record["timings_ms"]) == {"preprocess", "infer", "postprocess"}


def test_features(bundle, photos, tmp_path):
    values = json.loads((bundle / "model.json").read_text())
    values.update(task="features", classes=[], palette=[])
    values["outputs"][0]["kind"] = "feature"
    (bundle / "model.json").write_text(json.dumps(values))
    out = tmp_path / "out"
    assert main([str(bundle), str(photos / "a.png"), "--out", str(out), *ORT]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["a_features.npz", "predictions.json"]
    with np.load(out / "a_features.npz") as archive:
        assert archive["logits"].shape == (1, 5, 12, 16)


def test_equal_stems_do_not_overwrite_each_other(bundle, photo, tmp_path):
    for name in ("one/x.png", "two/x.png", "two/X.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_image(tmp_path / name, photo)
    out = tmp_path / "out"
    assert main([str(bundle), str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(out), *ORT]) == 0
    assert len(list(out.glob("*_mask.png"))) == 3
    files = [record["files"]["mask"] for record in json.loads((out / "predictions.json").read_text())["images"]]
    assert len(set(files)) == 3


def test_unique_stems():
    paths = [Path(p) for p in ("a/x.png", "b/x.png", "b/x-2.png", "X.jpg", "y.png")]
    assert unique_stems(paths) == ["x", "x-2", "x-2-2", "X-3", "y"]


def test_a_file_name_that_is_no_utf8(bundle, photo, tmp_path, run_module):
    write_image(tmp_path / "x.png", photo)
    try:
        named = (tmp_path / "x.png").rename(tmp_path / os.fsdecode(b"x-\xff.png"))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    result = run_module("deploy.predict", bundle, named, "--out", tmp_path / "out", *ORT)
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "out" / "predictions.json").read_text())["images"][0]
    assert record["image"] == os.fspath(named) and (tmp_path / "out" / record["files"]["mask"]).is_file()


def test_an_unreadable_image_among_good_ones(bundle, photos, tmp_path, run_module):
    (photos / "aa.png").write_bytes(b"broken")
    out = tmp_path / "out"
    result = run_module("deploy.predict", bundle, photos, "--out", out, *ORT)
    _assert_mistake(result, "aa.png cannot be decoded")
    assert "1 of 3 images could not be read, 2 succeeded" in result.stderr
    assert len(list(out.glob("*_mask.png"))) == 2
    failed = json.loads((out / "predictions.json").read_text())["failed"]
    assert [Path(item["image"]).name for item in failed] == ["aa.png"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bundle": "nowhere"}, "no bundle folder"),
        ({"bundle": "photos"}, "has no model.json"),
        ({"images": "corrupt.png"}, "cannot be decoded"),
        ({"images": "void"}, "holds no image"),
        ({"images": "nowhere"}, "no file or folder"),
        ({"runtime": "tvm"}, "invalid choice: 'tvm'"),
        ({"precision": "fp16"}, "no file with precision 'fp16'"),
        ({"threads": "0"}, "threads is 0"),
        ({"block": ["onnxruntime"]}, "pip install onnxruntime"),
    ],
)
def test_mistakes_write_nothing(bundle, photos, tmp_path, run_module, change, message):
    (tmp_path / "void").mkdir()
    (tmp_path / "corrupt.png").write_bytes(b"broken")
    before = sorted(tmp_path.rglob("*"))
    values = {"bundle": "bundle", "images": "photos", "runtime": "onnxruntime", "precision": "fp32", "threads": "1"}
    values |= {key: value for key, value in change.items() if key != "block"}
    options = [item for key in ("runtime", "precision", "threads") for item in (f"--{key}", values[key])]
    where = [tmp_path / values["bundle"], tmp_path / values["images"], "--out", tmp_path / "out"]
    _assert_mistake(run_module("deploy.predict", *where, *options, block=change.get("block", ())), message)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_changed_model_file_writes_nothing(bundle, photos, tmp_path, run_module):
    (bundle / "model.onnx").write_bytes(b"other")
    result = run_module("deploy.predict", bundle, photos, "--out", tmp_path / "out", *ORT)
    _assert_mistake(result, "is not the file the manifest describes")
    assert not (tmp_path / "out").exists()


def test_out_is_a_file(bundle, photos, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        main([str(bundle), str(photos), "--out", str(tmp_path / "out"), *ORT])
    assert (tmp_path / "out").read_text() == "mine"
