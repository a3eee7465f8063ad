"""Layer-wise learning-rate decay: the published factors, in both code bases, with custom keys."""

import pytest
from mmengine.optim import build_optim_wrapper
from torch import nn

from vitdense.engine.layer_decay import layer_factor
from vitdense.models import ViT


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ViT(
            dict(embed_dims=16, depth=3, num_heads=2),
            with_cls_token=True,
            final_norm=True,
            use_rel_pos=True,
            residual_block_indexes=(1,),
        )
        self.head = nn.Linear(4, 4)


def groups(model, **paramwise):
    wrapper = build_optim_wrapper(
        model,
        dict(
            type="OptimWrapper",
            constructor="vitdense.ViTLayerDecayOptimizerConstructor",
            optimizer=dict(type="AdamW", lr=1e-2, weight_decay=0.1),
            paramwise_cfg=paramwise,
        ),
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    # MMEngine adds one group of its own that only remembers the base rate.
    return {names[key]: group for group in wrapper.param_groups if (key := id(group["params"][0])) in names}


def test_published_factors():
    found = groups(Detector(), decay_rate=0.7, norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0)))
    expected = {
        "backbone.patch_embed.proj.weight": 0.7**4,
        "backbone.pos_embed.weight": 0.7**4,
        "backbone.cls_token": 0.7**4,
        "backbone.blocks.0.attn.qkv.weight": 0.7**3,
        "backbone.blocks.2.mlp.fc1.bias": 0.7,
        "backbone.blocks.1.attn.rel_pos.height": 0.7**2,
        "backbone.blocks.1.residual.conv2.weight": 1.0,
        "backbone.norm.weight": 1.0,
        "head.weight": 1.0,
    }
    for name, factor in expected.items():
        assert found[name]["lr"] == pytest.approx(1e-2 * factor), name
    assert found["backbone.pos_embed.weight"]["weight_decay"] == 0
    assert found["backbone.blocks.1.norm1.weight"]["weight_decay"] == 0
    assert found["backbone.blocks.1.attn.proj.weight"]["weight_decay"] == 0.1


def test_factor_of_vit_b():
    # detectron2: decay ** (layers + 1 - id), so 0.7 ** 13 for the embedding and 0.7 for the last block.
    assert layer_factor("patch_embed.proj.weight", 12, 0.7) == pytest.approx(0.7**13)
    assert layer_factor("blocks.0.norm1.bias", 12, 0.7) == pytest.approx(0.7**12)
    assert layer_factor("blocks.11.norm1.bias", 12, 0.7) == pytest.approx(0.7)


def test_custom_keys_multiply():
    found = groups(Detector(), decay_rate=0.5, custom_keys=dict(backbone=dict(lr_mult=0.1)))
    assert found["backbone.blocks.2.attn.qkv.weight"]["lr"] == pytest.approx(1e-2 * 0.1 * 0.5)
    assert found["head.weight"]["lr"] == pytest.approx(1e-2)


def test_decay_rate_alone_is_enough():
    assert groups(Detector(), decay_rate=0.5)["backbone.blocks.0.attn.qkv.weight"]["lr"] == pytest.approx(1e-2 * 0.5**3)


@pytest.mark.parametrize("paramwise", [{}, dict(decay_rate=0), dict(decay_rate=1.5)])
def test_bad_rates(paramwise):
    with pytest.raises(ValueError, match="decay_rate"):
        groups(Detector(), **paramwise)


def test_model_without_a_vit():
    with pytest.raises(ValueError, match="found no vitdense.ViT"):
        groups(nn.Linear(2, 2), decay_rate=0.7)
