"""LoRA: nothing changes at first, only the products train, merging is exact, deltas and exports keep them."""

import pytest
import torch
from torch import nn

from vitdense.checkpoints import load_pretrained, load_trained, save_delta
from vitdense.export.lowering import lower
from vitdense.models import ViT
from vitdense.models.lora import LoRALinear, merge_lora

ARCH = dict(embed_dims=24, depth=3, num_heads=3)


def vit(**options):
    return ViT(ARCH, pretrain_img_size=64, window_size=2, global_attn_indexes=(2,), with_cls_token=True, **options)


def randomised(model):
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2)
    return model


@pytest.fixture
def base():
    return randomised(vit()).state_dict()


def test_it_starts_as_the_pre_trained_model(base):
    plain, adapted = vit(), vit(lora=dict(rank=4))
    load_pretrained(plain, base)
    report = load_pretrained(adapted, base)
    assert len(report.initialised) == 3 * 4 * 2
    image = torch.randn(1, 3, 70, 101)
    assert torch.allclose(adapted(image)[0], plain(image)[0], atol=1e-6)


def test_only_the_products_behind_the_frozen_blocks_train(base):
    model = vit(lora=dict(rank=4, layers=("qkv", "fc2")), frozen_stages=1).train()
    load_pretrained(model, base)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # lora_a has no gradient while lora_b is zero
        optimizer.zero_grad()
        model(torch.randn(2, 3, 64, 64))[0].square().mean().backward()
        optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {
        f"blocks.{i}.{layer}.lora_{ab}" for i in (1, 2) for layer in ("attn.qkv", "mlp.fc2") for ab in "ab"
    }


def test_the_formula():
    torch.manual_seed(0)
    layer = LoRALinear(6, 5, True, rank=2, alpha=3.0)
    layer.lora_b.data.normal_()
    x = torch.randn(4, 6)
    explicit = x @ layer.weight.T + layer.bias + 1.5 * (x @ layer.lora_a.T) @ layer.lora_b.T
    assert torch.allclose(layer(x), explicit, atol=1e-6)


def test_half_precision_does_not_swallow_the_product():
    torch.manual_seed(0)
    layer = LoRALinear(64, 64, False, rank=4, alpha=4.0)
    layer.weight.data.normal_()
    layer.lora_b.data.normal_(0, 2e-4)
    x = torch.randn(32, 64)
    with torch.autocast("cpu", torch.bfloat16):
        change = layer(x) - torch.nn.functional.linear(x, layer.weight)
    exact = x @ layer.lora_a.T @ layer.lora_b.T
    layer.weight.data.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        alone = layer(x)
    assert (alone - exact).abs().max() < 0.02 * exact.abs().max() and change.isfinite().all()


def test_merged_and_lowered_models_give_the_same():
    model = randomised(vit(lora=dict(rank=4))).eval()
    image = torch.randn(1, 3, 64, 96)
    expected = model(image)[0]
    size = expected.abs().max().item()
    assert torch.allclose(lower(model, (64, 96))(image)[0], expected, atol=1e-5 * size)
    assert any(isinstance(module, LoRALinear) for module in model.modules()), "lower() changed its argument"
    merge_lora(model)
    assert not any(isinstance(module, LoRALinear) for module in model.modules())
    assert set(model.state_dict()) == set(vit().state_dict())
    assert torch.allclose(model(image)[0], expected, atol=1e-5 * size)


class Detector(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.backbone = vit(**options)
        self.head = nn.Conv2d(24, 3, 1)


@pytest.mark.parametrize("options", [dict(lora=dict(rank=4)), dict(use_rel_pos=True)], ids=["lora", "rel_pos"])
def test_a_delta_keeps_what_the_base_does_not_have(base, options, tmp_path):
    torch.save(base, tmp_path / "base.pth")
    model = Detector(**options)
    load_pretrained(model.backbone, base)
    added = [name for name in model.backbone.state_dict() if "lora" in name or "rel_pos" in name]
    for name in added:
        model.backbone.get_parameter(name).data.normal_()
    save_delta(model, tmp_path / "delta.safetensors", str(tmp_path / "base.pth"), ())
    found = Detector(**options)
    load_trained(found, tmp_path / "delta.safetensors")
    assert added
    for name in added:
        wanted = model.backbone.state_dict()[name].half().float()
        assert torch.equal(found.backbone.state_dict()[name], wanted), name


def test_weights_with_lora_do_not_load_without_it(tmp_path):
    torch.save(dict(state_dict=Detector(lora=dict(rank=2)).state_dict()), tmp_path / "a.pth")
    with pytest.raises(ValueError, match="One of the two has LoRA"):
        load_trained(Detector(), tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(lora=dict(rank=0)), "rank=0; expected 1..24"),
        (dict(lora=dict(rank=25)), "rank=25; expected 1..24"),
        (dict(lora=dict(alpha=3)), r"expected dict\(rank=8\)"),
        (dict(lora=dict(rank=2, layers=("qkv", "w12"))), r"\['w12'\]"),
        (dict(lora=dict(rank=2), frozen_stages=3), "blocks that are not frozen"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vit(**options)
