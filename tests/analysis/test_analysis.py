"""Attention, rollout, norms and costs against what the model itself computes."""

import pytest
import torch

from vitdense.analysis import (
    attention_rollout,
    block_costs,
    find_outliers,
    most_attended,
    position_similarity,
    record_tokens,
)
from vitdense.models import ViT

SIZES = dict(embed_dims=32, depth=3, num_heads=4)


def drawn(**options):
    torch.manual_seed(0)
    model = ViT(SIZES, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.mark.parametrize("grid", [(4, 6), (5, 3)])
@pytest.mark.parametrize(
    "options",
    [dict(), dict(use_rel_pos=True), dict(rel_pos_bias=True), dict(pos_embed="rotary"), dict(with_cls_token=False)],
)
def test_recorded_attention_reproduces_the_blocks(grid, options):
    """Values weighted with the recorded attention are what the block adds, window-major or padded."""
    options = {"with_cls_token": True, "num_register_tokens": 1, **options}
    model = drawn(window_size=2, global_attn_indexes=(1,), **options)
    image = torch.randn(1, 3, grid[0] * 16, grid[1] * 16)
    record = record_tokens(model, image)
    prefix = model.num_prefix
    with torch.no_grad():
        tokens, layout = model.embed(image)
        rotations = None if model.rotary is None else model.rotary(layout)
        for i, block in enumerate(model.blocks):
            raster = torch.cat([tokens[:, :prefix], layout.raster(tokens[:, prefix:])], dim=1)
            value = block.attn.qkv(block.norm1(raster))[..., 64:].unflatten(2, (4, 8)).transpose(1, 2)[0]
            found = block.attn.proj((record.attention[i] @ value).transpose(0, 1).flatten(1))
            change = block._attend(block.norm1(tokens), layout, rotations)
            expected = torch.cat([change[:, :prefix], layout.raster(change[:, prefix:])], dim=1)[0]
            rows = record.attention[i].sum(-1)
            if block.windowed and not layout.window_major:  # padding takes its share: compare where there is none
                assert rows.max() <= 1 + 1e-5 and rows.min() < 1 - 1e-3
                whole = (rows > 1 - 1e-5).all(0)
                assert torch.allclose(found[whole], expected[whole], atol=1e-4)
            else:
                assert torch.allclose(rows, torch.ones_like(rows), atol=1e-5)
                assert torch.allclose(found, expected, atol=1e-4)
            tokens = block(tokens, layout, rotations)
            norms = torch.cat([tokens[:, :prefix], layout.raster(tokens[:, prefix:])], dim=1)[0].norm(dim=-1)
            assert torch.allclose(record.norms[i], norms, atol=1e-4)


def test_rollout_is_the_product_with_half_the_identity():
    model = drawn(with_cls_token=True)
    record = record_tokens(model, torch.randn(1, 3, 48, 32))
    rollout = attention_rollout(record)
    assert torch.allclose(rollout.sum(-1), torch.ones(7), atol=1e-5)
    expected = torch.eye(7)
    for weights in record.attention:
        expected = (weights.mean(0) + torch.eye(7)) / 2 @ expected
    assert torch.allclose(rollout, expected, atol=1e-6)
    with pytest.raises(ValueError, match="attention of every block"):
        attention_rollout(record_tokens(model, torch.randn(1, 3, 48, 32), blocks=(0,)))


def test_outliers_are_marked_where_they_lie():
    model = drawn()
    record = record_tokens(model, torch.randn(1, 3, 64, 96))
    record.norms[2, 1 * 6 + 4] = 10 * record.norms[2].max()
    assert find_outliers(record, 2).nonzero().tolist() == [[1, 4]]
    assert record.of_token(2, 3).shape == (4, 4, 6)


def test_the_most_attended_token_and_its_share():
    model = drawn(with_cls_token=True)
    record = record_tokens(model, torch.randn(1, 3, 32, 48))
    record.attention[1][:] = 0.1
    record.attention[1][:, :, 4] = 0.4
    assert most_attended(record, 1) == (4, pytest.approx(0.4 / (0.4 + 6 * 0.1)))


def test_a_position_is_most_like_itself():
    model = drawn()
    similarity = position_similarity(model, (5, 7), (2, 3))
    assert similarity.shape == (5, 7) and similarity.argmax().item() == 2 * 7 + 3
    assert similarity.max().item() == pytest.approx(1, abs=1e-5)
    assert position_similarity(drawn(pos_embed="none"), (5, 7), (2, 3)) is None


def test_costs_are_the_known_answers():
    """Attention's products pass the MLP at N = 4 D, attention with its projections at N = 2 D (FACTS)."""
    with torch.device("meta"):
        model = ViT("base")
    (cost, *_) = block_costs(model, (224, 224))
    tokens, dims = 196, 768
    assert cost.tokens == tokens and cost.mlp == 2 * tokens * 8 * dims**2
    assert cost.products == 4 * tokens**2 * dims and cost.projections == 8 * tokens * dims**2
    doubled = block_costs(model, (448, 448))[0]
    assert doubled.score_bytes == 16 * cost.score_bytes  # twice the side: sixteen times the score matrix
    side = 16 * 64  # 64 x 64 = 4096 tokens: above 4 D = 3072 for B
    large = block_costs(model, (side, side))[0]
    assert large.products > large.mlp
    at_4d = block_costs(model, (16 * 48, 16 * 64))[0]  # 3072 tokens
    assert at_4d.products == at_4d.mlp
    at_2d = block_costs(model, (16 * 48, 16 * 32))[0]  # 1536 tokens
    assert at_2d.attention == at_2d.mlp


def test_costs_are_those_that_torch_counts():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = drawn(window_size=2, global_attn_indexes=(1,), with_cls_token=True)
    # Of the kernels for the CPU torch counts only the products of the plain one.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        tokens, layout = model.embed(torch.randn(1, 3, 64, 96))
        start = counter.get_total_flops()
        for block in model.blocks:
            tokens = block(tokens, layout)
    total = sum(cost.attention + cost.mlp for cost in block_costs(model, (64, 96)))
    assert counter.get_total_flops() - start == total


def test_gated_costs():
    with torch.device("meta"):
        model = ViT(dict(embed_dims=32, depth=1, num_heads=4, mlp_ratio=2), mlp="swiglu")
    assert block_costs(model, (64, 64))[0].mlp == 2 * 16 * 3 * 32 * 64


def test_one_image_at_a_time():
    with pytest.raises(ValueError, match="one image, got a batch of 2"):
        record_tokens(drawn(), torch.randn(2, 3, 32, 32))
