"""Detectors on other backbones go the same road, so that they can be compared."""

import json

import torch

from vitdense.config import load_config
from vitdense.engine.build import build_model

CONFIG = "configs/comparison/swin-t_gfl_bccd-240.py"
SMALL = {
    "model.backbone.embed_dims": 24,
    "model.backbone.depths": [1, 1, 2, 1],
    "model.backbone.num_heads": [2, 2, 4, 4],
    "model.neck.in_channels": [48, 96, 192],
    "model.test_cfg.score_thr": 0.15,  # many are found by random weights
}


def test_a_swin_is_exported_and_finds_what_mmdetection_finds(run_tool, data_root, monkeypatch, tmp_path):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    torch.manual_seed(0)
    model = build_model(load_config(CONFIG, dict(SMALL)))
    with torch.no_grad():  # objects without a training
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(0, 0.05)
        model.bbox_head.gfl_cls.bias.fill_(-1)
    checkpoint = tmp_path / "random.pth"
    meta = {"dataset_meta": {"classes": ("RBC", "WBC", "Platelets")}}
    torch.save({"state_dict": model.state_dict(), "meta": meta}, checkpoint)
    options = [f"{key}={str(value).replace(' ', '')}" for key, value in SMALL.items()]
    arguments = ["--out", tmp_path / "bundle", "--shape", 160, 224, "--num-images", 2, "--cfg-options", *options]
    result = run_tool("tools/export.py", CONFIG, checkpoint, *arguments)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    receipt = json.loads((tmp_path / "bundle/receipt.json").read_text())
    for parity in receipt["parity"]["runtimes"]:
        assert parity["detections"]["matched"] == parity["detections"]["eager"] >= 50
