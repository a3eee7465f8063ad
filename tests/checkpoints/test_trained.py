"""Deltas on pre-trained weights: exact, complete, and of no use to whom they do not fit."""

import json

import pytest
import torch
from mmengine.runner import load_checkpoint
from safetensors.torch import save_file
from torch import nn

from vitdense.checkpoints import load_trained, read_checkpoint, save_delta, save_whole, use_safe_loader
from vitdense.checkpoints.loader import read_metadata
from vitdense.models import ViT


class Segmenter(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = ViT(dict(embed_dims=16, depth=2, num_heads=2), pretrain_img_size=64)
        self.head = nn.Conv2d(16, classes, 1)
        self.bn = nn.BatchNorm2d(classes)


@pytest.fixture
def trained(tmp_path):
    """A base, a model that changed its second block and its head, and the delta."""
    base = tmp_path / "base.pth"
    torch.save(ViT(dict(embed_dims=16, depth=2, num_heads=2), pretrain_img_size=64).state_dict(), base)
    model = Segmenter()
    model.backbone.load_state_dict(torch.load(base))
    with torch.no_grad():
        for parameter in [*model.backbone.blocks[1].parameters(), *model.head.parameters()]:
            parameter.add_(torch.randn_like(parameter))
        model.bn.running_var.fill_(1e-9)  # FP16 would make it 0
    delta = tmp_path / "delta.safetensors"
    counts = save_delta(model, delta, str(base), ("a", "b", "c"))
    return model, delta, base, counts


def test_there_and_back(trained):
    model, delta, base, counts = trained
    found = Segmenter()
    origin = load_trained(found, delta)
    assert origin.classes == ("a", "b", "c") and origin.base == str(base)
    assert counts["from_base"] == sum(name.startswith("blocks.0") for name in model.backbone.state_dict()) + 3
    for name, value in model.state_dict().items():
        other = found.state_dict()[name]
        if name.startswith("backbone.blocks.1") and value.ndim > 1:
            change = (value - torch.load(base)[name.removeprefix("backbone.")]).abs().amax(dim=1, keepdim=True)
            assert ((other - value).abs() <= change / 254 * 1.001).all() and not torch.equal(other, value), name
        elif name.startswith(("backbone.blocks.1", "head", "bn.weight", "bn.bias")):
            assert torch.equal(other, value.half().float()), name
        else:
            assert torch.equal(other, value), name


def test_the_model_that_is_saved_stays_as_it_is(trained, tmp_path):
    model, _, base, _ = trained
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_delta(model, tmp_path / "again.safetensors", str(base), ())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.head.weight.data[0] = 1e6
    with pytest.raises(ValueError, match="head.weight holds values that FP16 cannot"):
        save_delta(model, tmp_path / "large.safetensors", str(base), ())
    assert not list(tmp_path.glob("large*"))


def rewrite(delta, **changes):
    metadata = {**read_metadata(delta), **changes}
    save_file(
        read_checkpoint(delta), delta, metadata={key: value for key, value in metadata.items() if value is not None}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(base_sha256="0" * 64), "belongs to base weights with sha256 0000"),
        (dict(from_base=None), "the metadata of the delta are damaged"),
        (dict(from_base="3"), "the metadata of the delta are damaged"),
        (dict(classes="{"), "the metadata of the delta are damaged"),
    ],
)
def test_damaged_metadata(trained, changes, message):
    _, delta, _, _ = trained
    rewrite(delta, **changes)
    model = Segmenter()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_trained(model, delta)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_matrix_that_changed_is_kept_in_8_bits(trained):
    tensors = read_checkpoint(trained[1])
    small = [name for name, value in tensors.items() if value.dtype == torch.int8]
    assert sorted(small) == [
        f"backbone.blocks.1.{name}.weight" for name in ("attn.proj", "attn.qkv", "mlp.fc1", "mlp.fc2")
    ]
    assert all(tensors[f"{name}::step"].shape == tensors[name].shape[:1] for name in small)
    assert all(tensors[name].abs().amax(dim=1).eq(127).all() for name in small), "all of the range is used"


def test_a_delta_of_a_delta_is_the_delta(trained, tmp_path):
    _, delta, base, _ = trained
    model = Segmenter()
    load_trained(model, delta)
    save_delta(model, tmp_path / "again.safetensors", str(base), ("a", "b", "c"))
    before, after = read_checkpoint(delta), read_checkpoint(tmp_path / "again.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("damage", ["no step", "no matrix", "too few steps", "a head in 8 bits"])
def test_changes_that_lost_their_steps(trained, damage):
    _, delta, _, _ = trained
    tensors, metadata = read_checkpoint(delta), read_metadata(delta)
    name = "backbone.blocks.1.mlp.fc1.weight"
    if damage == "no step":
        del tensors[f"{name}::step"]
    elif damage == "no matrix":
        del tensors[name]
    elif damage == "too few steps":
        tensors[f"{name}::step"] = tensors[f"{name}::step"][:-1].clone()
    else:
        tensors["head.weight"] = tensors["head.weight"].to(torch.int8)
    save_file(tensors, delta, metadata=metadata)
    model = Segmenter()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="changes in 8 bits and their steps do not belong together"):
        load_trained(model, delta)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_head_cannot_hide_behind_the_base(trained):
    _, delta, _, _ = trained
    tensors = read_checkpoint(delta)
    metadata = read_metadata(delta)
    metadata["from_base"] = json.dumps([*json.loads(metadata["from_base"]), "head.weight"])
    save_file({name: value for name, value in tensors.items() if name != "head.weight"}, delta, metadata=metadata)
    with pytest.raises(ValueError, match=r"missing \(1\): head.weight"):
        load_trained(Segmenter(), delta)


def test_other_number_of_classes(trained):
    _, delta, _, _ = trained
    with pytest.raises(ValueError, match=r"head.weight is \(3, 16, 1, 1\) in the file, \(4, 16, 1, 1\)"):
        load_trained(Segmenter(classes=4), delta)


def test_mmengine_refuses_a_delta(trained):
    from mmengine.runner.checkpoint import CheckpointLoader

    schemes = dict(CheckpointLoader._schemes)
    try:
        use_safe_loader()
        with pytest.raises(ValueError, match="is a delta.*convert_checkpoint"):
            CheckpointLoader.load_checkpoint(str(trained[1]), "cpu", logger=None)
    finally:
        CheckpointLoader._schemes = schemes


def test_layers_that_are_shared_among_levels_are_stored(tmp_path):
    model = Segmenter()
    model.levels = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)) for _ in range(2))
    model.levels[1][0], model.levels[1][1] = model.levels[0][0], model.levels[0][1]
    save_whole(model, tmp_path / "shared.safetensors", ())
    stored = read_checkpoint(tmp_path / "shared.safetensors")
    assert stored["levels.0.0.weight"].dtype == stored["levels.1.0.weight"].dtype == torch.float16
    assert torch.equal(stored["levels.0.0.weight"], stored["levels.1.0.weight"])


def test_a_whole_model_in_half_precision_comes_back_with_its_classes(trained, tmp_path):
    model = trained[0]
    assert save_whole(model, tmp_path / "whole.safetensors", ("a", "b", "c")) == len(model.state_dict())
    found = Segmenter()
    assert load_trained(found, tmp_path / "whole.safetensors").classes == ("a", "b", "c")
    for name, value in model.state_dict().items():
        wanted = value if name in ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked") else value.half()
        assert torch.equal(found.state_dict()[name], wanted.to(value.dtype)), name
    use_safe_loader()
    other = Segmenter()
    load_checkpoint(other, str(tmp_path / "whole.safetensors"), strict=True)  # as MMEngine's load_from does
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in found.state_dict().items())
