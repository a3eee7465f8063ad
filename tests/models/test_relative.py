"""Relative positions: the fused form against the explicit formula, and which kernel runs."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from vitdense.models import TokenLayout, ViT
from vitdense.models.attention import Attention
from vitdense.models.relative import DecomposedRelativePosition, RelativePositionBias

ROOT = Path(__file__).resolve().parents[2]
TINY = dict(embed_dims=32, depth=2, num_heads=4)
LIMIT = 1e-5


def drawn(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def places(layout):
    """Row and column of every patch token in the order of the layout."""
    grid = torch.stack(torch.meshgrid(*(torch.arange(side) for side in layout.grid), indexing="ij"), dim=-1)
    return layout.order(grid.flatten(0, 1)[None])[0].tolist()


def scores_of(attention, tokens):
    batch, length, channels = tokens.shape
    heads, width = attention.num_heads, attention.head_dim
    query, key, value = attention.qkv(tokens).reshape(batch, length, 3, heads, width).permute(2, 0, 3, 1, 4)
    return query, value, (query * width**-0.5) @ key.transpose(2, 3)


def finish(attention, scores, value):
    out = scores.softmax(dim=-1) @ value
    return attention.proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("grid", [(6, 6), (4, 8), (5, 3)])
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("prefix", [0, 3])
def test_decomposed_equals_the_explicit_formula(grid, window, prefix):
    layout = TokenLayout(grid, window, prefix)
    attention = drawn(Attention(32, 4, rel_pos=DecomposedRelativePosition(grid, 8)))
    tokens = torch.randn(2, prefix + grid[0] * grid[1], 32)
    with torch.no_grad():
        query, value, scores = scores_of(attention, tokens)
        rel_pos = attention.rel_pos
        for i, (y, x) in enumerate(places(layout), start=prefix):
            for j, (v, u) in enumerate(places(layout), start=prefix):
                vector = rel_pos.height[y - v + grid[0] - 1] + rel_pos.width[x - u + grid[1] - 1]
                scores[:, :, i, j] += query[:, :, i] @ vector
        expected = finish(attention, scores, value)
        found = attention(tokens, layout)
    assert (found - expected).abs().max() <= LIMIT * expected.abs().max()


@pytest.mark.parametrize("grid", [(4, 4), (2, 6), (5, 3)])
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_bias_table_equals_the_explicit_formula(grid, window, prefix):
    layout = TokenLayout(grid, window, prefix)
    bias = RelativePositionBias(grid, 4, with_cls_token=prefix > 0)
    attention = drawn(Attention(32, 4, rel_pos=bias))
    tokens = torch.randn(2, prefix + grid[0] * grid[1], 32)
    where = [None] * prefix + places(layout)
    with torch.no_grad():
        _, value, scores = scores_of(attention, tokens)
        for i, query in enumerate(where):
            for j, key in enumerate(where):
                if query and key:
                    index = (query[0] - key[0] + grid[0] - 1) * (2 * grid[1] - 1) + query[1] - key[1] + grid[1] - 1
                else:  # cls to patch, patch to cls, cls to cls
                    index = -3 if key else -2 if query else -1
                scores[:, :, i, j] += bias.table[index]
        expected = finish(attention, scores, value)
        found = attention(tokens, layout)
    assert (found - expected).abs().max() <= LIMIT * expected.abs().max()


def test_tables_are_interpolated_linearly_for_another_grid():
    rel_pos = drawn(DecomposedRelativePosition((4, 6), 8))
    rows, columns = rel_pos.tables((7, 6))
    assert rows.shape == (7, 7, 8) and columns.shape == (6, 6, 8)
    # 7 entries become 13: entry i of the new table lies at (i + 0.5) * 7 / 13 - 0.5 of the old.
    place = (9 + 0.5) * 7 / 13 - 0.5
    low = int(place)
    expected = torch.lerp(rel_pos.height[low], rel_pos.height[low + 1], place - low)
    assert torch.allclose(rows[5, 2], expected, atol=1e-6)  # offset 3 is entry 3 + 7 - 1
    assert torch.equal(columns[1, 4], rel_pos.width[1 - 4 + 5])


FUSED = {"aten::_scaled_dot_product_flash_attention_for_cpu"}


def kernels(call):
    """The kernels of scaled-dot-product attention that ran, forward only."""
    with profile(activities=[ProfilerActivity.CPU]) as record:
        call()
    names = {event.key for event in record.key_averages() if "_scaled_dot_product" in event.key}
    return {name for name in names if not name.endswith("_backward")}


@pytest.mark.parametrize("options", [dict(), dict(use_rel_pos=True), dict(pos_embed="rotary"), dict(rel_pos_bias=True)])
@pytest.mark.parametrize("size", [64, 80])
def test_the_fused_kernel_runs(options, size):
    model = ViT(TINY, window_size=2, global_attn_indexes=(1,), **options).eval()
    with torch.no_grad():
        assert kernels(lambda: model(torch.randn(1, 3, size, size))) == FUSED
    if "rel_pos_bias" not in options:  # torch's CPU kernel takes no mask that needs a gradient
        model.train()
        assert kernels(lambda: model(torch.randn(1, 3, size, size))[0].sum().backward()) == FUSED


def test_the_scores_of_a_wide_grid_stay_fused():
    rel_pos = DecomposedRelativePosition((96, 112), 64)  # 64 + 96 + 112 channels: more than flash attention's 256
    attention = Attention(64, 1, rel_pos=rel_pos).eval()
    layout = TokenLayout((96, 112))
    with torch.no_grad():
        wide = rel_pos.widen(*torch.randn(3, 1, 1, 96 * 112, 64), layout)
        assert {part.shape[-1] for part in wide} == {272}
        assert kernels(lambda: attention(torch.randn(1, 96 * 112, 64), layout)) == FUSED


MEMORY = """
import torch
from tools.benchmark.attention import reset_peak, resident
from vitdense.models import ViT

torch.set_num_threads(1)
model = ViT(dict(embed_dims=96, depth=1, num_heads=12), use_rel_pos=True, img_size=1024)
image = torch.randn(1, 3, 1024, 1024)
reset_peak()
before = resident("VmRSS")
with torch.no_grad():
    model.eval()(image)
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_the_scores_of_a_large_grid_are_never_stored():
    scores = 12 * 4096**2 * 4  # bytes, of one global block at 1024 x 1024
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout.split()[-1]) < 0.5 * scores


@pytest.mark.parametrize("options", [dict(use_rel_pos=True), dict(rel_pos_bias=True)])
def test_tables_learn(options):
    model = ViT(TINY, window_size=2, global_attn_indexes=(1,), with_cls_token=True, img_size=64, **options)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model(torch.randn(1, 3, 80, 64))[0].square().sum().backward()
    tables = [parameter for name, parameter in model.named_parameters() if "rel_pos" in name]
    assert len(tables) == (4 if "use_rel_pos" in options else 2)
    assert all(table.grad.abs().sum() > 0 for table in tables)
