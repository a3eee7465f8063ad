"""Tests of deploy.manifest and deploy.specs."""

import dataclasses
import json

import pytest

from deploy.files import sha256_of
from deploy.manifest import (
    DEFAULT_PRECISIONS,
    RUNTIME_TARGETS,
    FileSpec,
    load_manifest,
    save_manifest,
)
from deploy.runtimes import FILE_RUNTIMES

FP32, INT8 = "model.onnx", "model.openvino-int8.onnx"


def test_round_trip(tmp_path, new_manifest):
    manifest = new_manifest()
    save_manifest(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest
    assert next(iter(json.loads((tmp_path / "model.json").read_text()))) == "schema_version"
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_round_trip_of_features_and_uint8(tmp_path, new_manifest, new_input, new_output):
    manifest = new_manifest(
        task="features",
        input=new_input(dtype="uint8", normalize_in_graph=True, mean=[1, 2, 3]),
        outputs=[new_output(name="/p2", kind="feature", stride=3.5, shape=[1, 8, 12, 16])],
        classes=[],
        palette=[],
        calibration={},
    )
    save_manifest(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest


def test_the_runtimes_are_the_same_everywhere():
    assert set(FILE_RUNTIMES) == set(RUNTIME_TARGETS) == set(DEFAULT_PRECISIONS)


def _edit(folder, change):
    path = folder / "model.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(schema_version=99), r"schema_version is 99; this version of deploy reads 1"),
        (lambda v: v.pop("schema_version"), r"schema_version is None"),
        (lambda v: v.update(colour=1, zoo=2), r"unknown fields \['colour', 'zoo'\]"),
        (lambda v: v.pop("files"), r"missing fields \['files'\]"),
        (lambda v: v["input"].pop("mean"), r"input has missing fields \['mean'\]"),
        (lambda v: v["outputs"][0].update(scale=2), r"output 0 has unknown fields \['scale'\]"),
        (lambda v: v["files"][FP32].pop("sha256"), r"file 'model.onnx' has missing fields \['sha256'\]"),
        (lambda v: v.update(input=3), r"input is int; expected an object"),
        (lambda v: v.update(outputs={}), r"outputs must be a list"),
        (lambda v: v.update(task="depth"), r"task is 'depth'; expected one of 'segmentation', 'detection'"),
        (lambda v: v["palette"].pop(), r"5 classes but 4 palette"),
        (lambda v: v["palette"].__setitem__(1, [0, 0, 256]), r"palette colour of 'road'"),
        (lambda v: v["outputs"][0].update(shape=[1, 4, 12, 16]), r"\[N, 5, h, w\]"),
        (lambda v: v["outputs"][0].update(kind="feature"), r"one output of kind 'logits'"),
        (lambda v: v["outputs"].append(v["outputs"][0]), r"each with its own name"),
        (lambda v: v["files"].update({"../up.onnx": v["files"][FP32]}), r"plain file name"),
        (lambda v: v["files"][FP32].update(external_data=["model.onnx.data"]), r"external data 'model.onnx.data'"),
        (lambda v: v["files"][FP32].update(sha256="abc"), r"64 lower-case hex digits"),
        (lambda v: v["files"][FP32].update(precision="int4"), r"'fp32', 'fp16', 'int8'"),
        (lambda v: v["calibration"].update({"other.onnx": {}}), r"calibration names 'other.onnx'"),
        (lambda v: v["thresholds"].update(score="high"), r"threshold 'score'"),
        (lambda v: v["tools"].update(onnx=1.1), r"tools\['onnx'\]"),
        (lambda v: v["input"].update(shape=[1, 3, 48, -1]), r"input shape is .*positive integers"),
        (lambda v: v["input"].update(shape=[1, 1, 48, 64]), r"\[N, 3, H, W\]"),
        (lambda v: v["input"].update(std=[1, 0, 1]), r"std is .* above 0"),
        (lambda v: v["input"].update(std=[1, 1]), r"three numbers"),
        (lambda v: v["input"].update(dtype="uint8"), r"a uint8 input is one that the graph normalises"),
        (lambda v: v["input"].update(normalize_in_graph=True), r"a uint8 input is one that the graph normalises"),
        (lambda v: v["input"].update(normalize_in_graph=1), r"expected true or false"),
        (lambda v: v["input"].update(color_order="GBR"), r"color_order is 'GBR'"),
        (lambda v: v["input"].update(resize="crop"), r"resize is 'crop'"),
        (lambda v: v["input"].update(interpolation="cubic"), r"interpolation is 'cubic'"),
        (lambda v: v["input"].update(dtype="uint8", normalize_in_graph=True, pad_value=9), r"uint8 input cannot hold"),
    ],
)
def test_every_wrong_field_is_named(tmp_path, new_manifest, change, message):
    save_manifest(tmp_path, new_manifest())
    _edit(tmp_path, change)
    with pytest.raises(ValueError, match=message) as caught:
        load_manifest(tmp_path)
    assert str(tmp_path / "model.json") in str(caught.value)


def test_what_is_not_a_bundle(tmp_path):
    with pytest.raises(FileNotFoundError, match="no bundle folder"):
        load_manifest(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no model\.json"):
        load_manifest(tmp_path)
    for text in ('{"schema', "[" * 100_000):
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(ValueError, match="is not JSON"):
            load_manifest(tmp_path)
    (tmp_path / "model.json").write_text("[]")
    with pytest.raises(ValueError, match="expected an object"):
        load_manifest(tmp_path)
    with pytest.raises(ValueError, match="is a file; expected the bundle's folder"):
        load_manifest(tmp_path / "model.json")


def test_a_failed_save_leaves_the_old_manifest(tmp_path, new_manifest):
    manifest = new_manifest()
    save_manifest(tmp_path, manifest)
    with pytest.raises(ValueError, match="not plain JSON"):
        save_manifest(tmp_path, dataclasses.replace(manifest, source={"when": object()}))
    assert load_manifest(tmp_path) == manifest


def test_select(new_manifest):
    manifest = new_manifest()
    assert manifest.select("openvino") == INT8
    assert manifest.select("onnxruntime") == FP32
    assert manifest.select("openvino", "fp32") == FP32
    assert manifest.select("onnxruntime", "int8") == INT8
    with pytest.raises(ValueError, match=r"no file with precision 'fp16' for openvino; it has model\.onnx \(fp32"):
        manifest.select("openvino", "fp16")
    with pytest.raises(ValueError, match="runtime is 'tvm'; expected one of 'openvino', 'onnxruntime'"):
        manifest.select("tvm")


def test_select_without_int8_and_with_external_data(new_manifest):
    weights = FileSpec("5" * 64, 3, "fp32", "any")
    model = FileSpec("6" * 64, 3, "fp32", "any", ["model.onnx.data"])
    manifest = new_manifest(files={"model.onnx.data": weights, FP32: model}, calibration={})
    assert manifest.select("openvino") == FP32
    with pytest.raises(ValueError, match="no file with precision 'int8'"):
        manifest.select("openvino", "int8")


def test_a_file_for_another_target_is_not_selected(new_manifest):
    manifest = new_manifest(
        files={"model.tensorrt-int8.onnx": FileSpec("5" * 64, 3, "int8", "tensorrt")}, calibration={}
    )
    with pytest.raises(ValueError, match=r"tensorrt-int8\.onnx \(int8, for tensorrt\)"):
        manifest.select("openvino")


def test_verify(tmp_path, new_manifest):
    for name, text in ((FP32, "graph"), ("model.onnx.data", "weights")):
        (tmp_path / name).write_text(text)
    files = {name: FileSpec(sha256_of(tmp_path / name), 1, "fp32", "any") for name in (FP32, "model.onnx.data")}
    files[FP32] = dataclasses.replace(files[FP32], external_data=("model.onnx.data",))
    manifest = new_manifest(files=files, calibration={})
    manifest.verify(tmp_path, FP32)
    expected = files["model.onnx.data"].sha256
    (tmp_path / "model.onnx.data").write_text("other")
    with pytest.raises(
        ValueError, match=rf"model\.onnx\.data .*{expected}, found {sha256_of(tmp_path / 'model.onnx.data')}"
    ):
        manifest.verify(tmp_path, FP32)
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.onnx\.data is missing"):
        manifest.verify(tmp_path, FP32)
    with pytest.raises(ValueError, match="lists no file 'x.onnx'"):
        manifest.verify(tmp_path, "x.onnx")


def test_specs_are_frozen_and_normalised(new_input):
    spec = new_input(shape=[1, 3, 4, 6], mean=[1, 2, 3])
    assert spec.shape == (1, 3, 4, 6) and spec.mean == (1.0, 2.0, 3.0) and spec.size == (4, 6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "x"  # type: ignore[misc]


def test_select_for_a_target_takes_its_lowest_precision(new_manifest):
    tensorrt = {
        f"model.tensorrt-{name}.onnx": FileSpec("0" * 64, 4, precision=name, target="tensorrt")
        for name in ("fp16", "int8")
    }
    manifest = new_manifest()
    manifest = dataclasses.replace(manifest, files={**manifest.files, **tensorrt})
    assert manifest.select("onnxruntime", target="tensorrt") == "model.tensorrt-int8.onnx"
    assert manifest.select("onnxruntime", target="any") == FP32
    del tensorrt["model.tensorrt-int8.onnx"]
    manifest = dataclasses.replace(new_manifest(), files={**new_manifest().files, **tensorrt})
    assert manifest.select("onnxruntime", target="tensorrt") == "model.tensorrt-fp16.onnx"
