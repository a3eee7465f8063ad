"""tools/compare_recipes.py: real runs, a table and a picture, and no run twice."""

import json

import cv2

OPTIONS = ["--cfg-options", "train_cfg.max_iters=12", "train_cfg.val_interval=12"]


def test_it_trains_each_way_and_goes_on_where_it_stopped(small_segmenter, run_tool, tmp_path):
    out = tmp_path / "recipes"
    command = ["tools/compare_recipes.py", small_segmenter.config, "--out", out, "--images", "6", "all"]
    first = run_tool(*command, "--finetune", "linear", *OPTIONS)
    assert first.returncode == 0, (first.stdout + first.stderr)[-3000:]
    kept = (out / "linear-6/result.json").stat().st_mtime_ns
    result = run_tool(*command, "--finetune", "linear", "full", *OPTIONS)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert (out / "linear-6/result.json").stat().st_mtime_ns == kept, "a finished run was repeated"
    record = json.loads((out / "recipes.json").read_text())
    assert record["total_images"] == 24
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


def test_it_refuses_numbers_that_do_not_exist(small_segmenter, refused, tmp_path):
    arguments = ["tools/compare_recipes.py", small_segmenter.config, "--out", tmp_path / "r", "--images"]
    assert "a number from 1 to 24" in refused(*arguments, "25")
    assert "a number from 1 to 24" in refused(*arguments, "many")
    assert not (tmp_path / "r").exists()
