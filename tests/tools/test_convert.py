"""tools/convert_checkpoint.py on pre-trained ViTs, as users type it."""

import re
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch

from vitdense.checkpoints import load_pretrained, read_checkpoint, vit_from_checkpoint
from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.models import ViT

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(embed_dims=64, depth=2, num_heads=4)


def foreign(path):
    """A small MAE file under the original names."""
    model = ViT(SIZES, pretrain_img_size=64, with_cls_token=True, final_norm=True)
    state = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    state["pos_embed"] = state.pop("pos_embed.weight")
    torch.save({"model": {**state, "decoder_embed.weight": torch.ones(2), "mask_token": torch.ones(2)}}, path)
    return state


def test_a_foreign_vit_under_our_names_and_the_entry_that_fits(run_tool, tmp_path):
    state = foreign(tmp_path / "mae.pth")
    for ending in ("safetensors", "pth"):
        target = tmp_path / f"ours.{ending}"
        result = run_tool("tools/convert_checkpoint.py", tmp_path / "mae.pth", target, "--num-heads", 4)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "mae" in result.stdout and "decoder_embed.weight" in result.stdout
        assert "final norm is left out" in result.stdout
        entry = re.search(r"^model = (dict\(.*\))$", result.stdout, re.MULTILINE)[1]
        options = eval(entry)["backbone"]  # noqa: S307 (what the tool printed for a config)
        assert options.pop("_delete_") and options["patch_size"] == 16
        assert options.pop("type") == "vitdense.ViT" and options.pop("init_cfg")["checkpoint"] == str(target)
        model = ViT(**options)
        report = load_pretrained(model, target)
        assert report.source == "vitdense" and not report.ignored
        assert torch.equal(model.blocks[1].mlp.fc2.weight, state["blocks.1.mlp.fc2.weight"])
        again, _ = vit_from_checkpoint(target)  # the file says how its ViT was built
        assert again.pos_embed.grid == (4, 4) and torch.equal(again.cls_token, state["cls_token"])
        content = read_checkpoint(target)
        assert "pos_embed.weight" in content.get("state_dict", content)


def test_the_printed_entry_makes_a_config_that_inherits(run_tool, tmp_path):
    foreign(tmp_path / "mae.pth")
    arguments = [tmp_path / "mae.pth", tmp_path / "ours.pth", "--source", "mae", "--num-heads", 4]
    printed = run_tool("tools/convert_checkpoint.py", *arguments).stdout
    entry = re.search(r"^model = .*$", printed, re.MULTILINE)[0]
    config = tmp_path / "mine.py"
    config.write_text(f"_base_ = {str(ROOT / 'configs/edge/vits_gfl_coco-512.py')!r}\n{entry}\n")
    cfg = load_config(str(config))
    cfg.model.neck.in_channels = 64
    backbone = build_model(cfg).backbone
    backbone.init_weights()
    assert backbone.arch.embed_dims == 64 and backbone.frozen_stages == -1
    expected = read_checkpoint(tmp_path / "mae.pth")["model"]["blocks.1.mlp.fc2.weight"]
    assert torch.equal(backbone.blocks[1].mlp.fc2.weight, expected)


def test_a_final_norm_is_kept_where_asked(run_tool, tmp_path):
    state = foreign(tmp_path / "mae.pth")
    arguments = [tmp_path / "mae.pth", tmp_path / "ours.pth", "--source", "mae", "--num-heads", 4, "--final-norm"]
    result = run_tool("tools/convert_checkpoint.py", *arguments)
    assert result.returncode == 0 and "left out" not in result.stdout
    model, _ = vit_from_checkpoint(tmp_path / "ours.pth")
    assert torch.equal(model.norm.weight, state["norm.weight"])


def test_mistakes_leave_nothing(refused, tmp_path):
    foreign(tmp_path / "mae.pth")
    target = tmp_path / "ours.pth"
    for arguments, message in (
        ([tmp_path / "mae.pth", target], "give num_heads"),
        ([tmp_path / "mae.pth", target, "--source", "sam", "--num-heads", 4], "not SAM's encoder"),
        ([tmp_path / "mae.pth", target, "--source", "imagenet"], "source='imagenet' is unknown"),
        ([tmp_path / "mae.pth", target, "--trust-pickle"], "need --config"),
        ([tmp_path / "absent.pth", target], "does not exist"),
        (["https://dl.example.org/mae.pth", target], "is an address; download the file"),
        ([tmp_path / "mae.pth", tmp_path / "ours.bin"], "must end in .pth"),
    ):
        assert message in refused("tools/convert_checkpoint.py", *arguments)
        assert not target.exists()


def test_a_full_disk_leaves_nothing_and_no_traceback(tmp_path):
    foreign(tmp_path / "mae.pth")
    command = [sys.executable, "tools/convert_checkpoint.py", tmp_path / "mae.pth", tmp_path / "ours.pth"]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (100_000, 100_000))  # as a disk that is full then
    result = subprocess.run(
        [*map(str, command), "--num-heads", "4"], cwd=ROOT, capture_output=True, text=True, preexec_fn=limit
    )
    assert result.returncode == 2 and "Traceback" not in result.stderr, result.stderr
    assert f"cannot write {tmp_path}/ours.pth: File too large" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mae.pth"]
