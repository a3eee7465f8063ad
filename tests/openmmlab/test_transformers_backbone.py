"""The bridge to transformers' backbones."""

import pytest
import torch
from mmengine.registry import MODELS

import vitdense

transformers = pytest.importorskip("transformers")

FAMILIES = {
    "convnext": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "swin": dict(embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4], window_size=4, image_size=64),
    "pvt_v2": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
}


def build(scope="mmdet", **options):
    with MODELS.switch_scope_and_registry(scope) as registry:
        return registry.build(dict(type="vitdense.TransformersBackbone", **options))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scope", ["mmdet", "mmseg"])
def test_a_pyramid_of_each_family_in_both_code_bases(family, scope):
    first = 0 if family == "pvt_v2" else 1
    model = build(scope, model_type=family, config=FAMILIES[family], out_indices=range(first, first + 4)).eval()
    assert isinstance(model, vitdense.openmmlab.TransformersBackbone)
    with torch.no_grad():
        maps = model(torch.randn(1, 3, 64, 96))
    assert [tuple(m.shape) for m in maps] == [
        (1, channels, 64 // stride, 96 // stride)
        for channels, stride in zip(model.out_channels, (4, 8, 16, 32), strict=True)
    ]


def test_it_gives_what_transformers_gives_and_reads_a_folder(tmp_path):
    config = transformers.ConvNextConfig(**FAMILIES["convnext"], out_indices=[1, 2, 3, 4])
    oracle = transformers.ConvNextBackbone(config).eval()
    oracle.save_pretrained(tmp_path / "model")
    model = build(pretrained=str(tmp_path / "model"), frozen=True).train()
    assert not model.model.training and not any(parameter.requires_grad for parameter in model.parameters())
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        for found, expected in zip(model(image), oracle(image).feature_maps, strict=True):
            assert torch.equal(found, expected)


def test_a_folder_that_lacks_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    config = transformers.ConvNextConfig(**FAMILIES["convnext"], out_indices=[1, 2, 3, 4])
    transformers.ConvNextBackbone(config).save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    gone = sorted(state)[3]
    save_file(
        {key: value for key, value in state.items() if key != gone}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ValueError, match=f"missing or of another shape: .*{gone}"):
        build(pretrained=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(), "give either model_type"),
        (dict(model_type="nothing"), "no backbone for 'nothing'"),
        (dict(model_type="bert"), "no backbone for 'bert'"),
        (dict(pretrained="/nowhere"), "no such folder"),
        (dict(pretrained="/nowhere", config=dict(depths=[1])), r"leave \['depths'\] out"),
        (dict(model_type="convnext", config=dict(foo=1)), r"its config has no \['foo'\]"),
        (dict(model_type="convnext", out_indices=()), "out_indices is empty"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
