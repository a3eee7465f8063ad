"""Frozen blocks computed once per image: the same maps, no image taken for another, bounded memory."""

import copy

import pytest
import torch

from vitdense.models import ViT
from vitdense.models.feature_cache import FeatureCache


def vit(**options):
    torch.manual_seed(0)
    arch = dict(embed_dims=24, depth=4, num_heads=3)
    model = ViT(arch, pretrain_img_size=64, window_size=2, global_attn_indexes=(1, 3), **options)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2)
    return model.train()


@pytest.mark.parametrize(
    ("out_indices", "frozen", "options"),
    [
        ((-1,), 4, dict(with_cls_token=True, final_norm=True)),
        ((0, 1, 3), 2, dict(final_norm=True, drop_path_rate=0.0)),
        ((0,), 3, dict(pos_embed="rotary")),
        ((1, 2), 1, dict(num_register_tokens=2)),
    ],
)
def test_cached_maps_are_those_of_the_whole_model(out_indices, frozen, options):
    model = vit(out_indices=out_indices, frozen_stages=frozen, **options)
    images = torch.randn(3, 3, 70, 101)
    expected = model(images)
    model.feature_cache = FeatureCache(10**9)
    first = model(images)
    again = model(images[[2, 0]])
    for wanted, new, found in zip(expected, first, again, strict=True):
        assert torch.allclose(new, wanted, atol=1e-5)
        assert torch.allclose(found, wanted[[2, 0]], atol=1e-5)
    assert (model.feature_cache.misses, model.feature_cache.hits) == (3, 2)


def test_gradients_reach_what_is_not_frozen_and_nothing_else():
    model = vit(out_indices=(1, 3), frozen_stages=2, final_norm=True)
    images = torch.randn(2, 3, 64, 64)
    gradients = []
    for cache in (None, FeatureCache(10**9), None):
        if cache is not None or not gradients:
            model.feature_cache = cache
        model.zero_grad()
        sum(image.square().sum() for image in model(images)).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert set(gradients[0]) == {
        name for name, _ in model.named_parameters() if name.startswith(("blocks.2", "blocks.3", "norm"))
    }
    for cached in gradients[1:]:
        assert all(torch.allclose(cached[name], value, rtol=1e-4, atol=1e-5) for name, value in gradients[0].items())


def test_a_changed_pixel_or_another_shape_is_another_image():
    model = vit(frozen_stages=4)
    model.feature_cache = FeatureCache(10**9)
    image = torch.zeros(1, 3, 64, 96)
    model(image)
    changed = image.clone()
    changed[0, 2, 63, 95] = 1e-6
    model(changed)
    model(image.reshape(1, 3, 96, 64))
    assert (model.feature_cache.misses, model.feature_cache.hits) == (3, 0)


def test_an_image_twice_in_a_batch_is_computed_once():
    model = vit(frozen_stages=4)
    images = torch.randn(2, 3, 64, 64)[[0, 1, 0]]
    expected = model(images)[0]
    model.feature_cache = FeatureCache(10**9)
    assert torch.allclose(model(images)[0], expected, atol=1e-5)
    assert (model.feature_cache.misses, model.feature_cache.hits, len(model.feature_cache)) == (2, 1, 2)


def test_what_does_not_fit_the_memory_is_computed_each_time():
    model = vit(frozen_stages=4)
    images = torch.randn(3, 3, 64, 64)
    size = 16 * 24 * 4
    expected = model(images)[0]
    model.feature_cache = FeatureCache(2 * size)
    for _ in range(2):
        assert torch.allclose(model(images)[0], expected, atol=1e-5)
    cache = model.feature_cache
    assert (len(cache), cache.num_bytes, cache.rejected, cache.hits, cache.misses) == (2, 2 * size, 2, 2, 4)


def test_a_copied_model_does_not_share_its_cache():
    model = vit(frozen_stages=4)
    model.feature_cache = FeatureCache(10**9)
    image = torch.randn(1, 3, 64, 64)
    before = model(image)[0]
    other = copy.deepcopy(model)
    other.patch_embed.proj.weight.data.zero_()
    assert not torch.allclose(other(image)[0], before)
    assert len(model.feature_cache) == 1
