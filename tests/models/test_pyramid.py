"""The simple feature pyramid, layer by layer."""

import pytest
import torch
from torch import nn

from vitdense.models import LayerNorm2d, SimpleFeaturePyramid, ViT
from vitdense.models.norm import build_norm2d


def test_levels_have_the_published_layers():
    neck = SimpleFeaturePyramid(64, 32)
    kinds = [[type(layer).__name__ for layer in level] for level in neck.levels]
    tail = ["Conv2d", "LayerNorm2d", "Conv2d", "LayerNorm2d"]
    assert kinds == [
        ["ConvTranspose2d", "LayerNorm2d", "GELU", "ConvTranspose2d", *tail],
        ["ConvTranspose2d", *tail],
        tail,
        ["MaxPool2d", *tail],
    ]
    convolutions = [layer for layer in neck.modules() if isinstance(layer, nn.Conv2d)]
    assert all(layer.bias is None for layer in convolutions)
    assert [layer.kernel_size for layer in convolutions[:2]] == [(1, 1), (3, 3)]
    assert {layer.eps for layer in neck.modules() if isinstance(layer, LayerNorm2d)} == {1e-6}
    assert [layer.weight.shape[:2] for layer in neck.levels[0] if isinstance(layer, nn.ConvTranspose2d)] == [
        (64, 32),
        (32, 16),
    ]


@pytest.mark.parametrize("size", [(8, 8), (7, 11)])
def test_outputs_from_stride_4_to_64(size):
    outs = SimpleFeaturePyramid(64, 32)((torch.randn(2, 64, *size),))
    height, width = size
    # p6 is a strided pick of p5: every second cell, starting at the first.
    assert [tuple(out.shape) for out in outs] == [
        (2, 32, 4 * height, 4 * width),
        (2, 32, 2 * height, 2 * width),
        (2, 32, height, width),
        (2, 32, height // 2, width // 2),
        (2, 32, -(-(height // 2) // 2), -(-(width // 2) // 2)),
    ]
    assert torch.equal(outs[4], outs[3][..., ::2, ::2])


def test_takes_the_map_it_is_told():
    neck = SimpleFeaturePyramid(8, 8, scales=(1,), num_outs=1, in_index=0)
    maps = (torch.randn(1, 8, 4, 4), torch.randn(1, 8, 4, 4))
    assert torch.equal(neck(maps)[0], neck((maps[0],))[0])


def test_several_maps_are_concatenated_and_projected():
    neck = SimpleFeaturePyramid([48, 64], 32, scales=(1,), num_outs=1, in_index=[0, 2])
    maps = (torch.randn(2, 48, 5, 7), torch.randn(2, 99, 5, 7), torch.randn(2, 64, 5, 7))
    (out,) = neck(maps)
    projection, norm = neck.fuse
    joined = torch.cat([maps[0], maps[2]], dim=1)
    explicit = torch.einsum("oc,bchw->bohw", projection.weight[:, :, 0, 0], joined)
    assert torch.allclose(out, neck.levels[0](norm(explicit)), atol=1e-5)
    with pytest.raises(ValueError, match="must name as many maps"):
        SimpleFeaturePyramid([48, 64], 32, in_index=[0])


@pytest.mark.parametrize("norm", ["LN2d", "BN"])
def test_maps_are_contiguous_because_mmcvs_roi_align_reads_them_so(norm):
    from mmcv.ops import roi_align

    vit = ViT(dict(embed_dims=32, depth=1, num_heads=2), pretrain_img_size=64)
    maps = vit(torch.randn(1, 3, 96, 128))
    outs = SimpleFeaturePyramid(32, 16, norm_cfg=dict(type=norm))(maps)
    assert all(image.is_contiguous() for image in (*maps, *outs))
    box = torch.tensor([[0.0, 8, 8, 90, 70]])
    with torch.no_grad():
        found = roi_align(outs[1], box, 3, 1 / 8, 2)
        # 6 x 6 points of two per bin, bilinear, of the map itself.
        y, x = ((low / 8 - 0.5 + (torch.arange(6) + 0.5) / 6 * side / 8) for low, side in ((8, 62), (8, 82)))
        height, width = outs[1].shape[-2:]
        points = torch.stack(torch.meshgrid(2 * (x + 0.5) / width - 1, 2 * (y + 0.5) / height - 1, indexing="xy"), -1)
        sampled = torch.nn.functional.grid_sample(outs[1], points[None], align_corners=False)
    assert torch.allclose(found, torch.nn.functional.avg_pool2d(sampled, 2), atol=1e-5)


def test_channel_layer_norm_is_layer_norm_over_channels():
    norm = LayerNorm2d(6)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    x = torch.randn(2, 6, 5, 3)
    mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    expected = (x - mean) / (var + 1e-6).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
    assert torch.allclose(norm(x), expected, atol=1e-6)


def test_other_norms_and_none():
    neck = SimpleFeaturePyramid(64, 32, norm_cfg=dict(type="GN", num_groups=8))
    assert isinstance(neck.levels[2][1], nn.GroupNorm)
    bare = SimpleFeaturePyramid(64, 32, norm_cfg=None)
    assert bare.levels[2][0].bias is not None and len(bare.levels[2]) == 2
    frozen = build_norm2d(dict(type="BN", requires_grad=False), 8)
    assert not frozen.weight.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(scales=(3,)), "scale 3 is unknown"),
        (dict(num_outs=3), "num_outs=3 is below"),
        (dict(norm_cfg=dict(type="LN")), "'LN' is unknown"),
    ],
)
def test_bad_arguments_say_what_fits(options, message):
    with pytest.raises(ValueError, match=message):
        SimpleFeaturePyramid(64, 32, **options)
