"""Pinning layers to float until the score is met."""

import json
import shutil

import cv2
import numpy as np
import onnx
import pytest

from deploy.files import sha256_of
from deploy.manifest import load_manifest
from deploy.predictor import Predictor
from vitdense.config import load_config
from vitdense.errors import ParityError
from vitdense.evaluation import evaluate, largest_drop, open_data
from vitdense.evaluation.split import open_split
from vitdense.quant.tune import Memory, _fewest, search_strength, tune
from vitdense.quant.units import quantized_units

FILE = "model.openvino-int8.onnx"


@pytest.fixture(scope="module")
def badly_calibrated(small_bundle, small_segmenter, tmp_path_factory, run_tool):
    """Ranges from black images, and layers pinned on training images until that does no harm."""
    folder = tmp_path_factory.mktemp("tuned")
    bundle, black = folder / "bundle", folder / "black"
    shutil.copytree(small_bundle, bundle)
    black.mkdir()
    for level in range(8):
        cv2.imwrite(str(black / f"{level}.png"), np.full((96, 96, 3), level, np.uint8))
    options = ["--eval", small_segmenter.config, "--tune", "train", "--tune-images", "12", "--threads", "2"]
    result = run_tool("tools/quantize.py", bundle, "--target", "openvino", "--calib", black, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return bundle, result.stdout


def test_the_drop_is_met_by_pinning(badly_calibrated, small_segmenter):
    bundle, output = badly_calibrated
    measured = json.loads((bundle / "receipt.json").read_text())["targets"]["openvino"]
    tuning, accuracy = measured["tuning"], measured["accuracy"]
    assert accuracy["drop_points"] <= 0.5
    assert tuning["steps"][0]["pinned"] == 0 and tuning["steps"][0]["drop"] > 0.5, "without pinning it is not met"
    met = [step["pinned"] for step in tuning["steps"] if step["drop"] <= 0.25]  # half of what is allowed
    assert len(tuning["pinned"]) == min(met) > 0
    assert "units in float" in output and "of multiplications" in output
    assert "Warning: the calibration images are unlike the others" in output and measured["saturation"]["unlike"]
    assert tuning["images"] == 12 and tuning["split"] == "train"
    assert set(tuning["pinned"]) <= set(tuning["sensitivity"]) and set(tuning["smooth_quant"]) == {
        "0.3",
        "0.5",
        "0.7",
        "0.9",
    }
    assert 0 < measured["int8_share"] < 1


def test_the_file_is_what_the_record_says(badly_calibrated):
    bundle, _ = badly_calibrated
    record = load_manifest(bundle).calibration[FILE]["tuning"]
    tuning = json.loads((bundle / "receipt.json").read_text())["targets"]["openvino"]["tuning"]
    units = quantized_units(onnx.load(bundle / FILE), onnx.load(bundle / "model.onnx"))
    assert {unit.name for unit in units} == set(tuning["sensitivity"]) - set(record["pinned"])
    assert list(record) == ["split", "images", "sha256", "pinned"] and record["pinned"] == tuning["pinned"]
    assert len(set(record["sha256"])) == 12 and "sha256" not in tuning


def test_a_tuned_bundle_can_be_exported_again(badly_calibrated, small_segmenter, run_tool, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(badly_calibrated[0], bundle)
    (bundle / ".quantize.tuning-tensorrt.json").write_text("{}")  # of one that was stopped
    options = ["--out", bundle, "--shape", 96, 96, "--num-images", 2, "--overwrite"]
    result = run_tool("tools/export.py", small_segmenter.config, small_segmenter.checkpoint, *options)
    assert result.returncode == 0, result.stderr
    assert not list(bundle.glob("sensitivity*")) and not list(bundle.glob(".quantize*"))


def test_the_figure_is_there_and_what_was_in_progress_is_not(badly_calibrated):
    bundle, _ = badly_calibrated
    assert cv2.imread(str(bundle / "sensitivity-openvino.png")).shape[0] > 300
    assert not list(bundle.glob(".quantize*"))


def test_images_that_were_tuned_on_are_not_scored(badly_calibrated, small_segmenter, refused):
    bundle, _ = badly_calibrated
    images = small_segmenter.data / "images" / "train"
    options = [f"test_dataloader.dataset.data_prefix.{key}={value}" for key, value in _train_prefix(small_segmenter)]
    message = refused(
        "tools/evaluate.py", bundle, small_segmenter.config, "--precision", "int8", "--cfg-options", *options
    )
    assert "calibrated or tuned on 12 of the 24 images" in message and str(images) in message


def _train_prefix(small_segmenter):
    return load_config(str(small_segmenter.config)).train_dataloader.dataset.data_prefix.items()


def test_tuning_needs_labels(refused, small_bundle, small_segmenter):
    train = small_segmenter.data / "images" / "train"
    options = [small_bundle, "--target", "openvino", "--calib", train]
    assert "--tune needs --eval" in refused("tools/quantize.py", *options, "--tune", "train")
    message = refused("tools/quantize.py", *options, "--tune", "train", "--eval", small_segmenter.config)
    assert "0 of the 24 images of the train data are neither calibrated on nor scored" in message
    for wrong, said in (
        (["--tune-images", 9], "for --tune"),
        (["--tune", "val", "--tune-images", 3], "3 images are fewer"),
    ):
        assert said in refused("tools/quantize.py", *options, "--eval", small_segmenter.config, *wrong)
    message = refused("tools/quantize.py", *options, "--tune", "val", "--eval", small_segmenter.config)
    assert "of the 8 images of the val data" in message


@pytest.fixture
def tuning(quantize_small, small_segmenter, tmp_path):
    """Arguments of :func:`tune` for the small segmenter, and how many models were loaded."""
    folder = quantize_small("openvino")
    manifest = load_manifest(folder)
    data, _ = open_split(manifest, load_config(str(small_segmenter.config)), "train", 8, 8, ())
    loaded = []

    def load(model):
        loaded.append(model)
        work = tmp_path / f"work{len(loaded)}"
        shutil.copytree(folder, work)
        onnx.save(model, work / FILE)
        from dataclasses import replace

        from deploy.manifest import save_manifest
        from vitdense.export.bundle import file_spec

        files = {**manifest.files, FILE: file_spec(work / FILE, "int8", "openvino")}
        save_manifest(work, replace(manifest, files=files, calibration={}))
        return Predictor(work, runtime="onnxruntime", precision="int8", threads=1)

    source, quantized = onnx.load(folder / "model.onnx"), onnx.load(folder / FILE)

    def run(memory, max_drop=0.05, loader=load):
        return tune(
            source, quantized, loader, data, max_drop, memory, lambda text: None, lambda items, label: iter(items)
        )

    run.load, run.loaded, run.data, run.source, run.quantized = load, loaded, data, source, quantized
    return run


def test_an_interrupted_tuning_goes_on(tuning, tmp_path):
    whole, found = tuning(Memory(tmp_path / "whole.json", {"key": 1}))
    in_one_go = len(tuning.loaded)

    def interrupted(model):
        if len(tuning.loaded) == in_one_go + 5:
            raise KeyboardInterrupt
        return tuning.load(model)

    with pytest.raises(KeyboardInterrupt):
        tuning(Memory(tmp_path / "parts.json", {"key": 1}), loader=interrupted)
    kept = len(Memory(tmp_path / "parts.json", {"key": 1}))
    assert kept == 4  # the float model, and four units
    again, found_again = tuning(Memory(tmp_path / "parts.json", {"key": 1}))
    assert found_again == found and again.SerializeToString() == whole.SerializeToString()
    assert len(tuning.loaded) - in_one_go - 5 == in_one_go - kept, "what was known was not measured again"
    assert not len(Memory(tmp_path / "parts.json", {"key": 2})), "figures of another tuning"
    (tmp_path / "parts.json").write_text("{damaged")
    assert not len(Memory(tmp_path / "parts.json", {"key": 1}))


def test_the_tuned_model_scores_as_the_step_that_chose_it(tuning, tmp_path):
    model, found = tuning(Memory(tmp_path / "m.json", {}), max_drop=0.05)
    (chosen,) = [step for step in found.steps if step.pinned == len(found.pinned)]
    scores, _ = evaluate([tuning.load(tuning.source), tuning.load(model)], tuning.data)
    assert largest_drop(*scores)[1] == pytest.approx(chosen.drop, abs=1e-4) and chosen.drop <= 0.025
    assert all(step.drop > 0.025 for step in found.steps if step.pinned < chosen.pinned)


def test_no_choice_is_good_enough(tuning, tmp_path):
    with pytest.raises(ParityError, match="with all but the last of"):
        tuning(Memory(tmp_path / "m.json", {}), max_drop=-50)


@pytest.mark.parametrize("needed", range(9))
def test_fewest(needed):
    tried = []
    found = _fewest(8, lambda count: tried.append(count) or count >= needed)
    assert found == (needed if needed < 8 else None)
    assert len(tried) <= 4 and tried[0] == 0


def test_the_split_leaves_out_what_it_is_told_to(small_segmenter, small_bundle):
    manifest, cfg = load_manifest(small_bundle), load_config(str(small_segmenter.config))
    whole, hashes = open_split(manifest, cfg, "train", 100, 8, ())
    assert len(hashes) == 24 and whole.truth(0).shape == (96, 96)
    assert list(hashes) == [sha256_of(path) for path in whole.paths()]
    some, chosen = open_split(manifest, cfg, "train", 6, 6, hashes[:12])
    assert len(chosen) == 6 and set(chosen) <= set(hashes[12:])
    assert list(chosen) == [sha256_of(path) for path in some.paths()]
    assert (some.truth(0) == whole.truth(hashes.index(chosen[0]))).all()
    assert some.fingerprint() != whole.fingerprint()
    cfg.train_dataloader.dataset.indices = list(range(10, 24))
    part, hashes_of_part = open_split(manifest, cfg, "train", 8, 8, ())
    assert list(hashes_of_part) == [sha256_of(path) for path in part.paths()] and set(hashes_of_part) <= set(
        hashes[10:]
    )
    assert len(open_data(manifest, cfg).paths()) == 8, "the config is as it was"


def test_splits_that_are_not_there(small_segmenter, small_bundle):
    manifest, cfg = load_manifest(small_bundle), load_config(str(small_segmenter.config))
    cfg.train_dataloader.dataset = dict(type="ConcatDataset", datasets=[cfg.train_dataloader.dataset] * 2)
    with pytest.raises(ValueError, match="the train data of the config are 2 data sets"):
        open_split(manifest, cfg, "train", 8, 8, ())
    cfg.val_dataloader = None
    with pytest.raises(ValueError, match="no val_dataloader"):
        open_split(manifest, cfg, "val", 8, 8, ())


def test_the_usual_strength_is_kept_unless_another_is_better(tuning, tmp_path):
    def search(quantize, name):
        arguments = [tuning.source, tuning.load, tuning.data, Memory(tmp_path / name, {}), lambda text: None]
        return search_strength(quantize, 0.5, *arguments)

    best, shares = search(lambda strength: tuning.source, "equal.json")
    assert best == 0.5 and set(shares.values()) == {0.0} and list(shares) == ["0.3", "0.7", "0.9", "0.5"]
    best, shares = search(lambda strength: tuning.source if strength == 0.7 else tuning.quantized, "better.json")
    assert best == 0.7 and shares["0.7"] == 0 < shares["0.5"]


def test_images_without_objects_are_refused(tuning, tmp_path):
    memory = Memory(tmp_path / "m.json", {})
    tuning(memory)
    content = json.loads((tmp_path / "m.json").read_text())
    content["values"]["float"]["miou"] = float("nan")
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="have no labelled objects"):
        tuning(Memory(tmp_path / "m.json", {}))
