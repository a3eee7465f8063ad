"""Away from the native size: each family's own formula, written from its original repository."""

import pickle
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitdense.checkpoints import load_pretrained, read_checkpoint, vit_from_checkpoint
from vitdense.checkpoints.resample import resize_bias_table
from vitdense.models import ViT

OLD, NEW = (4, 4), (7, 5)
DIMS, DEPTH, HEADS = 48, 2, 4


def plain_state(**extra):
    """A ViT under the original names, every value random."""
    model = ViT(
        dict(embed_dims=DIMS, depth=DEPTH, num_heads=HEADS), pretrain_img_size=64, with_cls_token=True, final_norm=True
    )
    state = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    state["pos_embed"] = state.pop("pos_embed.weight")
    return {**state, **extra}


def loaded_table(state, source, **options):
    model = ViT(
        dict(embed_dims=DIMS, depth=DEPTH, num_heads=HEADS),
        pretrain_img_size=(NEW[0] * 16, NEW[1] * 16),
        with_cls_token=True,
        final_norm=True,
        **options,
    )
    load_pretrained(model, state, source)
    return model.pos_embed.weight


def image_of(table):
    return table[:, 1:].reshape(1, *OLD, DIMS).permute(0, 3, 1, 2)


def flat(image):
    return image.permute(0, 2, 3, 1).reshape(1, NEW[0] * NEW[1], DIMS)


def relative_error(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def mae_formula(table):  # util/pos_embed.py, interpolate_pos_embed
    return flat(F.interpolate(image_of(table), size=NEW, mode="bicubic", align_corners=False))


def dino_formula(table):  # vision_transformer.py, interpolate_pos_encoding: 0.1 against a floor one too small
    scale = ((NEW[0] + 0.1) / OLD[0], (NEW[1] + 0.1) / OLD[1])
    return flat(F.interpolate(image_of(table), scale_factor=scale, mode="bicubic"))


def timm_formula(table):  # layers/pos_embed.py, resample_abs_pos_embed
    return flat(F.interpolate(image_of(table), size=NEW, mode="bicubic", antialias=True))


@pytest.mark.parametrize(
    ("source", "formula"),
    [("mae", mae_formula), ("deit", mae_formula), ("dino", dino_formula), ("vit", timm_formula)],
)
def test_position_table_of_plain_vits(source, formula, parity):
    state = plain_state()
    table = loaded_table(state, source)
    assert torch.equal(table[:, :1], state["pos_embed"][:, :1])
    error = relative_error(table[:, 1:], formula(state["pos_embed"]))
    parity(f"{source}, position table", "the original's formula", "4 x 4 to 7 x 5 patches", error)


@pytest.mark.parametrize("registers", [0, 4])
def test_position_table_of_dinov2(registers, parity):
    scales = {f"blocks.{i}.ls{j}.gamma": torch.randn(DIMS) for i in range(DEPTH) for j in (1, 2)}
    state = plain_state(**scales)
    if registers:
        state["register_tokens"] = torch.randn(1, registers, DIMS)
    table = loaded_table(state, "auto", num_register_tokens=registers, layer_scale_init=1.0)
    formula = timm_formula if registers else dino_formula  # with registers: filtered, without an offset
    error = relative_error(table[:, 1:], formula(state["pos_embed"]))
    kind = "dinov2 with registers" if registers else "dinov2"
    parity(f"{kind}, position table", "the original's formula", "4 x 4 to 7 x 5 patches", error)


def test_a_distilled_deit_keeps_its_second_token():
    state = plain_state(dist_token=torch.randn(1, 1, DIMS))
    state["pos_embed"] = torch.randn(1, 18, DIMS)
    model, report = vit_from_checkpoint(state, num_heads=HEADS)
    assert report.source == "deit" and model.num_prefix == 2
    assert torch.equal(model.register_tokens, state["dist_token"] + state["pos_embed"][:, 1:2])
    assert torch.equal(model.pos_embed.weight, state["pos_embed"][:, [0, *range(2, 18)]])


def beit_formula(table, old, new):
    """run_class_finetuning.py of BEiT, with scipy's spline: interp2d of the original fits the same one."""
    interpolate = pytest.importorskip("scipy.interpolate")
    source, target = 2 * old - 1, 2 * new - 1
    left, right = 1.01, 1.5
    while right - left > 1e-6:
        ratio = (left + right) / 2
        total = (1 - ratio ** (source // 2)) / (1 - ratio)
        left, right = (left, ratio) if total > target // 2 else (ratio, right)
    distances, current = [], 1
    for i in range(source // 2):
        distances.append(current)
        current += ratio ** (i + 1)
    places = [-d for d in reversed(distances)] + [0] + distances
    wanted = np.clip(np.arange(-(target // 2), target // 2 + 1), places[0], places[-1])
    spline = [interpolate.RectBivariateSpline(places, places, head.numpy())(wanted, wanted) for head in table]
    return torch.from_numpy(np.stack(spline)).float()


@pytest.mark.parametrize("new", [6, 9, 14])
def test_bias_tables_of_beit_grow_as_in_its_repository(new, parity):
    table = torch.randn(3, 7, 7)
    error = relative_error(resize_bias_table(table, (new, new)), beit_formula(table, 4, new))
    parity("beit, bias table", "the original's formula (scipy)", f"4 x 4 to {new} x {new} patches", error)


def test_bias_tables_of_beit_are_cut_for_windows():
    table = torch.randn(3, 7, 7)
    assert torch.equal(resize_bias_table(table, (2, 3)), table[:, 2:5, 1:6])
    names = {f"blocks.{i}.attn.relative_position_bias_table": torch.randn(52, HEADS) for i in range(DEPTH)}
    state = plain_state(**names)
    del state["pos_embed"]
    model, report = vit_from_checkpoint(state, window_size=2, global_attn_indexes=(1,))
    assert report.interpolated == {"blocks.0.attn.rel_pos.table": "(4, 4) -> (2, 2)"}
    stored = names["blocks.0.attn.relative_position_bias_table"][:-3].T.reshape(HEADS, 7, 7)
    assert torch.equal(model.blocks[0].attn.rel_pos.offsets((2, 2)), stored[:, 2:5, 2:5])
    assert torch.equal(model.blocks[1].attn.rel_pos.table, names["blocks.1.attn.relative_position_bias_table"])


def test_a_windowed_bias_is_that_of_a_model_for_the_window_alone():
    sizes = dict(embed_dims=32, depth=1, num_heads=4)
    alone = ViT(sizes, rel_pos_bias=True, pretrain_img_size=32, pos_embed="none").eval()
    for parameter in alone.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    windowed = ViT(sizes, rel_pos_bias=True, pretrain_img_size=64, pos_embed="none", window_size=2).eval()
    windowed.load_state_dict(alone.state_dict())
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(windowed(image)[0][..., 2:, :2], alone(image[..., 32:, :32])[0], atol=1e-5)


HUB = [  # transformers' names before version 5, as the files on the hub have them
    (
        r"^layers\.(\d+)\.attention\.([qkv])_proj\.",
        lambda m: f"encoder.layer.{m[1]}.attention.attention.{PARTS[m[2]]}.",
    ),
    (r"^layers\.(\d+)\.attention\.o_proj\.", r"encoder.layer.\1.attention.output.dense."),
    (r"^layers\.(\d+)\.mlp\.fc1\.", r"encoder.layer.\1.intermediate.dense."),
    (r"^layers\.(\d+)\.mlp\.fc2\.", r"encoder.layer.\1.output.dense."),
    (
        r"^layers\.(\d+)\.relative_position_bias\.",
        r"encoder.layer.\1.attention.attention.relative_position_bias.",
    ),
    (r"^layers\.", "encoder.layer."),
]
PARTS = dict(q="query", k="key", v="value")


@pytest.mark.parametrize("family", ["ViT", "Beit"])
def test_names_of_the_hub_load_like_those_in_memory(family):
    transformers = pytest.importorskip("transformers")
    options = dict(use_relative_position_bias=True) if family == "Beit" else {}
    config = getattr(transformers, f"{family}Config")(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=64, **options
    )
    state = {
        name: torch.randn_like(value)
        for name, value in getattr(transformers, f"{family}Model")(config).state_dict().items()
    }
    hub = {}
    for name, value in state.items():
        for pattern, replacement in HUB:
            name = re.sub(pattern, replacement, name)
        hub[f"{family.lower()}.{name}"] = value
    hub["classifier.weight"] = torch.ones(2)
    source = "vit" if family == "ViT" else "auto"
    expected, _ = vit_from_checkpoint(state, source, num_heads=4)
    found, report = vit_from_checkpoint(hub, source, num_heads=4)
    assert "classifier.weight" in report.ignored
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())


def test_tables_of_sam_and_vitdet_at_another_size(parity):
    """Positions bicubic, relative tables linear: as the model itself does at run time."""
    transformers = pytest.importorskip("transformers")
    config = transformers.SamVisionConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, mlp_dim=96, image_size=96, window_size=4,
        global_attn_indexes=[1], output_channels=16,
    )  # fmt: skip
    state = {key: torch.randn_like(value) for key, value in transformers.SamVisionModel(config).state_dict().items()}
    native, _ = vit_from_checkpoint(state)
    larger, report = vit_from_checkpoint(state, pretrain_img_size=160, img_size=160)
    table = state["vision_encoder.pos_embed"].permute(0, 3, 1, 2)
    expected = F.interpolate(table, size=(10, 10), mode="bicubic", align_corners=False).permute(0, 2, 3, 1)
    found = larger.pos_embed.weight.unflatten(1, (10, 10))
    parity(
        "sam, position table",
        "the original's formula (ViTDet's)",
        "6 x 6 to 10 x 10 patches",
        relative_error(found, expected),
    )
    assert report.interpolated["blocks.1.attn.rel_pos.height"] == "11 -> 19"
    assert not any(name.startswith("blocks.0.") for name in report.interpolated)
    image = torch.randn(1, 3, 160, 160)
    with torch.no_grad():
        error = relative_error(larger.eval()(image)[0], native.eval()(image)[0])
    parity("sam, resized at import", "resized at run time", "96 to 160 pixels", error)


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_hostile_pkl_or_npz_is_refused_and_not_run(tmp_path):
    marker = tmp_path / "ran"
    for name, write in (
        ("a.pkl", lambda path: path.write_bytes(pickle.dumps({"model": Hostile(marker)}))),
        ("a.npz", lambda path: np.savez(path, a=np.array([Hostile(marker)], dtype=object))),
    ):
        write(tmp_path / name)
        marker.unlink(missing_ok=True)  # numpy may have called it while writing
        with pytest.raises(ValueError, match="refused|damaged or of another kind"):
            read_checkpoint(tmp_path / name)
        assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x80\x04", pickle.dumps([1, 2])])
def test_a_damaged_pkl_is_named(tmp_path, content):
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(ValueError, match="a.pkl is (damaged|refused)"):
        read_checkpoint(tmp_path / "a.pkl")
