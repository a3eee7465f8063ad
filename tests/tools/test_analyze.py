"""tools/analyze.py as users type it."""

import json

import cv2
import numpy as np
import torch


def image_in(folder):
    path = folder / "photo.png"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8))
    return path


def test_sheet_and_record_of_a_trained_model(run_tool, small_segmenter, tmp_path):
    out = tmp_path / "new" / "out"
    arguments = [small_segmenter.config, image_in(tmp_path), "--checkpoint", small_segmenter.checkpoint, "--out", out]
    result = run_tool("tools/analyze.py", *arguments, "--shape", 72, 96, "--place", 8, 11)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    picture = cv2.imread(str(out / "tokens.png"))
    assert picture is not None and min(picture.shape[:2]) > 500
    record = json.loads((out / "tokens.json").read_text())
    assert record["grid"] == [9, 12] and len(record["blocks"]) == 2
    assert [block["windowed"] for block in record["blocks"]] == [True, False]
    assert "attention says where" in record["does_not_prove"]
    assert record["weights"] == str(small_segmenter.checkpoint)
    assert all(0 < block["most_attended"]["share"] <= 1 for block in record["blocks"])
    assert "window" in result.stdout and "global" in result.stdout


def test_pretrained_weights_of_any_kind_without_a_flood(run_tool, small_segmenter, tmp_path):
    state = torch.load(small_segmenter.checkpoint, weights_only=False)["state_dict"]
    prefix = "backbone."
    bare = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    torch.save(bare, tmp_path / "bare.pth")
    arguments = [small_segmenter.config, image_in(tmp_path), "--pretrained", tmp_path / "bare.pth"]
    result = run_tool("tools/analyze.py", *arguments, "--out", tmp_path / "out")
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert json.loads((tmp_path / "out/tokens.json").read_text())["shape"] == [96, 96], "the config's own size"
    assert "vitdense from" in result.stdout and len(result.stdout.splitlines()) < 30
    assert json.loads((tmp_path / "out/tokens.json").read_text())["weights"].endswith("bare.pth")


def test_mistakes(refused, small_segmenter, tmp_path):
    image, out = image_in(tmp_path), ("--out", tmp_path / "out")
    for arguments, message in (
        ([small_segmenter.config, tmp_path / "absent.png"], "there is no image"),
        ([small_segmenter.config, image], "give weights: --checkpoint or --pretrained"),
        ([small_segmenter.config, image, "--place", 99, 0], "outside the grid of 12 x 12"),
        ([small_segmenter.config, image, "--shape", 2000, 2000], "of at most 5000 is stored"),
        ([small_segmenter.config, image, "--shape", 0, 8], "must be positive"),
        ([small_segmenter.config, image, "--checkpoint", tmp_path / "absent.pth"], "does not exist"),
    ):
        assert message in refused("tools/analyze.py", *arguments, *out)
        assert not (tmp_path / "out").exists()
