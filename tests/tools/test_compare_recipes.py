"""tools/compare_recipes.py: real runs, a table and a picture, and no run twice."""

import json

import cv2
import pytest

from vitdense.config import load_config
from vitdense.engine.compare import plan

OPTIONS = ["--cfg-options", "train_cfg.max_iters=12", "train_cfg.val_interval=12"]


def test_it_trains_each_way_and_goes_on_where_it_stopped(started_config, run_tool, refused, tmp_path):
    out = tmp_path / "recipes"
    command = ["tools/compare_recipes.py", started_config, "--out", out, "--images", "6", "all"]
    first = run_tool(*command, "--finetune", "linear", *OPTIONS)
    assert first.returncode == 0, (first.stdout + first.stderr)[-3000:]
    kept = (out / "linear-6/result.json").stat().st_mtime_ns
    result = run_tool(*command, "--finetune", "linear", "full", *OPTIONS)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert (out / "linear-6/result.json").stat().st_mtime_ns == kept, "a finished run was repeated"
    record = json.loads((out / "recipes.json").read_text())
    assert [(run["finetune"], run["images"]) for run in record["runs"]] == [
        ("linear", 6),
        ("linear", 24),
        ("full", 6),
        ("full", 24),
    ]
    assert all(run["metric"] == "mIoU" and 0 < run["score"] <= 100 and run["seconds"] > 0 for run in record["runs"])
    log = (out / "linear-6/train.log").read_text()
    assert "Frozen features: 18 of 24 images found again, 6 kept" in log  # six images, four times
    assert (out / "recipes.md").read_text().count("\n") == 6
    assert cv2.imread(str(out / "recipes.png")).std() > 5
    other = refused(
        *command, "--finetune", "linear", "--cfg-options", "train_cfg.max_iters=13", "train_cfg.val_interval=13"
    )
    assert "linear-6 holds the result of another config" in other


def test_it_refuses_before_it_trains(started_config, small_segmenter, refused, tmp_path):
    command = ["tools/compare_recipes.py", started_config, "--out", tmp_path / "r"]
    assert "a number from 1 to 24" in refused(*command, "--images", "25")
    assert "expected 'all' or a number" in refused(*command, "--images", "many")
    detector = "configs/vitdet/vits-dinov2_gfl_bccd.py"
    arguments = ["--out", tmp_path / "r", "--finetune", "head", "linear"]
    assert "a detector has no linear head" in refused("tools/compare_recipes.py", detector, *arguments)
    mini = "configs/edge/vits_mask-rcnn_coco-mini.py"
    assert "OperatingPointMetric" in refused("tools/compare_recipes.py", mini, "--out", tmp_path / "r")
    scratch = [small_segmenter.config, "--out", tmp_path / "r", "--images", "all", "--finetune", "full", "lora"]
    assert "would freeze random weights" in refused("tools/compare_recipes.py", *scratch)
    assert not (tmp_path / "r").exists()


def test_parts_of_the_images_are_spread_and_repeated(data_root, monkeypatch):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    (recipe,) = plan({"head": load_config("configs/vitdet/vits-dinov2_gfl_bccd.py")}, [50])
    indices = recipe.config.train_dataloader.dataset.indices
    assert len(indices) == 292 and len(set(indices)) == 50 and max(indices) > 280
    mini = load_config("configs/edge/vits_mask-rcnn_coco-mini.py")
    mini.val_evaluator = dict(type="CocoMetric")
    with pytest.raises(ValueError, match="the training data have 2 parts"):
        plan({"head": mini}, [50])
