"""Position embeddings against their published formulas, on and off the stored grid."""

import math

import numpy as np
import pytest
import torch

from vitdense.models import TokenLayout, ViT
from vitdense.models.position import SeparateEmbedding, SinCosEmbedding
from vitdense.models.rotary import RotaryEmbedding

TINY = dict(embed_dims=32, depth=2, num_heads=4)


@pytest.mark.parametrize("grid", [(14, 14), (3, 5)])
def test_sincos_is_the_table_of_mae(grid):
    found = SinCosEmbedding(grid, 32).patches(grid)[0].numpy()
    for row in range(grid[0]):
        for column in range(grid[1]):
            expected = []
            for place in (column, row):  # MAE's first half is the column, whatever its variables are called
                angles = [place / 10000 ** (i / 8) for i in range(8)]
                expected += [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
            np.testing.assert_allclose(found[row * grid[1] + column], expected, atol=1e-5)


def test_sincos_equals_the_table_of_transformers_vitmae():
    module = pytest.importorskip("transformers.models.vit_mae.modeling_vit_mae")
    rows_first = module.build_2d_sinusoidal_position_embedding(14, 14, 48, cls_token=True)
    expected = torch.cat([rows_first[:, 24:], rows_first[:, :24]], dim=1)  # as ViTMAE turns it to match MAE's files
    table = SinCosEmbedding((14, 14), 48)
    found = torch.cat([table.cls(), table.patches((14, 14))], dim=1)[0]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)


def test_sincos_keeps_its_range_on_another_grid():
    table = SinCosEmbedding((4, 4), 32)
    # A patch of the doubled grid lies a quarter of an old patch from the old centre.
    fine, angle = table.patches((8, 4)).unflatten(1, (8, 4)), 0.5 * 2.5 - 0.5
    assert fine[0, 2, 0, 16].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_separate_rows_and_columns_are_added_and_interpolated():
    table = SeparateEmbedding((3, 4), 8)
    assert torch.allclose(table.patches((3, 4))[0, 2 * 4 + 1], table.rows[2] + table.columns[1])
    finer = table.patches((6, 4)).unflatten(1, (6, 4))
    expected = torch.lerp(table.rows[0], table.rows[1], 0.25) + table.columns[3]  # row 1 of 6 lies at 0.25
    assert torch.allclose(finer[0, 1, 3], expected, atol=1e-6)


def test_rotary_angles_are_those_of_dinov3():
    rotary = RotaryEmbedding(head_dim=8, base=100.0)
    whole, windows = rotary(TokenLayout((2, 3), num_prefix=1))
    assert whole is windows
    assert torch.equal(whole.cos[0, 0], torch.ones(8)) and torch.equal(whole.sin[0, 0], torch.zeros(8))
    row, column = 0.5, -2 / 3  # the centre of the patch at (1, 0), from -1 to 1
    expected = [2 * math.pi * place / period for place in (row, column) for period in (1.0, 100 ** (2 / 4))] * 2
    np.testing.assert_allclose(whole.cos[0, 1 + 3], np.cos(expected), atol=1e-5)
    np.testing.assert_allclose(whole.sin[0, 1 + 3], np.sin(expected), atol=1e-5)


@pytest.mark.parametrize("grid", [(4, 6), (5, 3)])
def test_rotary_positions_in_windows_are_those_of_the_whole_grid(grid):
    layout = TokenLayout(grid, window_size=2, num_prefix=2)
    whole, windows = RotaryEmbedding(head_dim=8)(layout)
    columns = layout.num_windows[1]
    angles = whole.cos[0, 2:]
    raster = layout.raster(angles[None])[0].unflatten(0, grid)
    for row in range(grid[0]):
        for column in range(grid[1]):
            window = row // 2 * columns + column // 2
            place = 2 + row % 2 * 2 + column % 2
            assert torch.equal(windows.cos[window, place], raster[row, column])
    assert torch.equal(windows.cos[:, :2], torch.ones(len(windows.cos), 2, 8))
    if grid == (5, 3):  # padding is not turned, so it stays the same key for every window
        assert torch.equal(windows.cos[-1, 2 + 3], torch.ones(8))


def test_rotary_scores_depend_on_the_offset_only():
    rotation, _ = RotaryEmbedding(head_dim=8)(TokenLayout((4, 5)))
    query, key = torch.randn(8), torch.randn(8)
    turned = [rotation(part.expand(1, 1, 20, 8))[0, 0] for part in (query, key)]
    scores = (turned[0] @ turned[1].T).unflatten(0, (4, 5)).unflatten(2, (4, 5))
    assert torch.allclose(scores[0, 0, 2, 1], scores[1, 3, 3, 4], atol=1e-5)
    assert not torch.allclose(scores[0, 0, 2, 1], scores[0, 0, 1, 2], atol=1e-3)


@pytest.mark.parametrize("kind", ["learned", "sincos", "separate", "rotary", "none"])
@pytest.mark.parametrize("window", [0, 2])
def test_every_kind_works_at_any_size_and_sees_where_patches_are(kind, window):
    torch.manual_seed(0)
    model = ViT(
        TINY, pos_embed=kind, window_size=window, global_attn_indexes=(1,), with_cls_token=True, pretrain_img_size=64
    ).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    image = torch.randn(1, 3, 16, 16).repeat(1, 1, 5, 6)  # the same patch everywhere
    with torch.no_grad():
        found = model(image)[0].flatten(2)
    differ = (found - found[..., :1]).abs().max() > 1e-3
    assert found.shape == (1, 32, 30)
    # Equal patches can only be told apart by their positions, or by the zero padding of their window (5 rows here).
    assert differ == (kind != "none" or window > 0)
