"""The backbone: sizes, layouts, freezing, and the known answers of the papers."""

import pytest
import torch
from torch import nn

from vitdense.models import ARCHS, PositionEmbedding, TokenLayout, ViT
from vitdense.models.windows import merge_windows, partition_windows

TINY = dict(embed_dims=32, depth=3, num_heads=4)


def randomise(model, seed=0):
    """Draws every parameter as DESIGN says: none keeps its initial value."""
    generator = torch.Generator().manual_seed(seed)
    norms = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.LayerNorm)
        for name, parameter in module.named_parameters()
        if name == "weight"
    }
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if id(parameter) in norms else 0.05 * noise)
    return model


@pytest.mark.parametrize("shape", [(224, 224), (512, 512), (333, 517), (64, 96)])
@pytest.mark.parametrize("window", [0, 4, 14])
def test_any_size_gives_ceil_of_the_grid(shape, window):
    model = ViT(TINY, window_size=window, global_attn_indexes=(2,), out_indices=(0, -1)).eval()
    with torch.no_grad():
        outs = model(torch.randn(1, 3, *shape))
    assert [tuple(out.shape) for out in outs] == [(1, 32, -(-shape[0] // 16), -(-shape[1] // 16))] * 2


def test_padding_is_zeros_at_the_bottom_and_right():
    model = randomise(ViT(TINY)).eval()
    image = torch.randn(1, 3, 333, 517)
    padded = torch.zeros(1, 3, 336, 528)
    padded[:, :, :333, :517] = image
    with torch.no_grad():
        assert torch.equal(model(image)[0], model(padded)[0])


class PerBlockLayout(TokenLayout):
    """The reference: raster order, windows cut in every block, as published."""

    @property
    def window_major(self):
        return False


@pytest.mark.parametrize("grid", [(8, 8), (4, 12), (12, 8)])
@pytest.mark.parametrize("registers", [0, 3])
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(use_rel_pos=True, img_size=128, residual_block_indexes=(0, 1)),
        dict(rel_pos_bias=True, img_size=128),
        dict(pos_embed="rotary"),
    ],
)
def test_window_major_equals_windows_cut_in_every_block(grid, registers, options):
    tokens = dict(with_cls_token=registers > 0, num_register_tokens=registers)
    model = randomise(ViT(TINY, window_size=4, global_attn_indexes=(1,), **tokens, **options)).eval()
    image = torch.randn(2, 3, grid[0] * 16, grid[1] * 16)
    with torch.no_grad():
        fast = model(image)[0]
        assert model.layout(grid).window_major
        model.layout = lambda grid: PerBlockLayout(grid, 4, model.num_prefix)
        slow = model(image)[0]
    assert (fast - slow).abs().max() <= 2e-6 * slow.abs().max() * 5


def test_attention_is_permutation_equivariant():
    model = randomise(ViT(TINY))
    attention = model.blocks[0].attn.eval()
    tokens, order = torch.randn(2, 35, 32), torch.randperm(35)
    with torch.no_grad():
        moved = attention(tokens[:, order], TokenLayout((5, 7)))
        assert torch.allclose(attention(tokens, TokenLayout((5, 7)))[:, order], moved, atol=1e-6)


@pytest.mark.parametrize("grid", [(8, 12), (5, 7), (13, 4)])
@pytest.mark.parametrize("prefix", [0, 2])
def test_split_and_merge_are_inverse(grid, prefix):
    layout = TokenLayout(grid, window_size=4, num_prefix=prefix)
    tokens = torch.randn(2, prefix + grid[0] * grid[1], 6)
    windows = layout.split(tokens)
    rows, columns = layout.num_windows
    assert windows.shape == (2 * rows * columns, prefix + 16, 6)
    assert torch.allclose(layout.merge(windows, batch=2), tokens)
    patches = tokens[:, prefix:]
    assert torch.equal(layout.raster(layout.order(patches)), patches)


def test_window_order_is_row_by_row_of_windows():
    grid = torch.arange(16.0).reshape(1, 4, 4, 1)
    windows = partition_windows(grid, 2)
    assert windows[..., 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    assert torch.equal(merge_windows(windows, 2, (2, 2), batch=1), grid)


def test_windowed_blocks_do_not_see_past_their_window():
    model = randomise(ViT(TINY, window_size=4)).eval()
    image = torch.randn(1, 3, 128, 128)
    changed = image.clone()
    changed[:, :, 64:, 64:] += 1  # the last of four windows
    with torch.no_grad():
        before, after = model(image)[0], model(changed)[0]
    assert torch.equal(before[..., :4, :], after[..., :4, :])
    assert not torch.equal(before[..., 4:, 4:], after[..., 4:, 4:])


@pytest.mark.parametrize(("arch", "millions"), [("base", 85.8), ("large", 303.3), ("huge", 630.8)])
def test_parameters_of_the_published_sizes(arch, millions):
    patch = 14 if arch == "huge" else 16
    with torch.device("meta"):
        model = ViT(arch, patch_size=patch, with_cls_token=True, final_norm=True)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


def test_position_table_of_base_has_197_entries():
    with torch.device("meta"):
        model = ViT("base", with_cls_token=True)
    assert model.pos_embed.weight.numel() == 197 * 768 == 151_296
    assert ARCHS["huge"].embed_dims // ARCHS["huge"].num_heads == 80


def test_patch_embedding_is_a_linear_layer_on_flat_patches():
    model = randomise(ViT(TINY, patch_size=8))
    image = torch.randn(1, 3, 16, 24)
    weight, bias = model.patch_embed.proj.weight, model.patch_embed.proj.bias
    patches = image.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).reshape(1, 6, -1)
    expected = patches @ weight.flatten(1).T + bias
    tokens, grid = model.patch_embed(image)
    assert grid == (2, 3)
    assert torch.allclose(tokens, expected, atol=1e-5)


def test_positions_are_kept_at_the_stored_grid_and_follow_the_convention_elsewhere():
    table = PositionEmbedding((37, 37), 8, with_cls_token=True, interpolate_offset=0.1)
    assert table.patches((37, 37)).data_ptr() == table.weight[:, 1:].data_ptr()
    plain = PositionEmbedding((37, 37), 8, with_cls_token=True)
    plain.load_state_dict(table.state_dict())
    assert table.patches((16, 21)).shape == plain.patches((16, 21)).shape == (1, 16 * 21, 8)
    # The offset of the original DINOv2 is a different function; mixing the two up must not go unnoticed.
    assert (table.patches((16, 16)) - plain.patches((16, 16))).abs().max() > 1e-4


def test_extra_tokens_take_part_and_do_not_come_out():
    model = randomise(ViT(TINY, with_cls_token=True, num_register_tokens=2)).eval()
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before = model(image)[0]
        assert before.shape == (1, 32, 4, 4)
        for name in ("cls_token", "register_tokens"):
            model.get_parameter(name).add_(torch.randn(32))  # a constant would vanish in the norm
            after = model(image)[0]
            assert not torch.allclose(before, after)
            before = after


def test_checkpointing_changes_memory_not_gradients():
    gradients = []
    for with_cp in (False, True):
        model = randomise(ViT(TINY, window_size=4, with_cp=with_cp)).train()
        model(torch.linspace(-1, 1, 3 * 96 * 64).reshape(1, 3, 96, 64))[0].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.allclose(plain, recomputed, rtol=1e-5, atol=1e-6)


def test_frozen_stages_freeze_and_stay_in_evaluation_mode():
    model = ViT(TINY, frozen_stages=2, drop_path_rate=0.5, with_cls_token=True, final_norm=True).train()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert {"cls_token", "pos_embed.weight", "patch_embed.proj.weight"} <= frozen
    assert {name.split(".")[1] for name in frozen if name.startswith("blocks")} == {"0", "1"}
    assert not model.blocks[1].training and model.blocks[2].training and model.norm.training
    whole = ViT(TINY, frozen_stages=3, final_norm=True)
    assert not any(parameter.requires_grad for parameter in whole.parameters())


def test_drop_path_rises_linearly_and_keeps_the_mean():
    model = ViT(dict(embed_dims=32, depth=5, num_heads=4), drop_path_rate=0.4)
    assert [round(block.drop_path.drop_prob, 3) for block in model.blocks] == [0.0, 0.1, 0.2, 0.3, 0.4]
    drop = model.blocks[-1].drop_path.train()
    torch.manual_seed(0)
    out = drop(torch.ones(20_000, 1, 1))
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert out.mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(arch="medium"), "arch='medium' is unknown"),
        (dict(arch=dict(embed_dims=30, depth=2, num_heads=4)), "does not divide"),
        (dict(arch=dict(embed_dims=32, depth=2)), r"missing keys \['num_heads'\]"),
        (dict(arch=TINY, out_indices=(3,)), "out_indices holds 3, but the blocks are 0..2"),
        (dict(arch=TINY, global_attn_indexes=(-4,)), "global_attn_indexes holds -4"),
        (dict(arch=TINY, pretrain_img_size=225), "no positive multiple of patch_size=16"),
        (dict(arch=TINY, pos_embed="rope"), "choose 'learned', 'sincos', 'separate', 'rotary' or 'none'"),
        (dict(arch=TINY, mlp="relu"), "mlp='relu' is unknown"),
        (dict(arch=TINY, use_rel_pos=True, rel_pos_bias=True), "exclude each other"),
        (dict(arch=TINY, residual_block_indexes=(3,)), "residual_block_indexes holds 3"),
        (dict(arch=dict(embed_dims=30, depth=1, num_heads=3), pos_embed="sincos"), "multiple of 4, not 30"),
        (dict(arch=dict(embed_dims=30, depth=1, num_heads=3), pos_embed="rotary"), "multiple of 4, not 10"),
        (dict(arch=TINY, frozen_stages=4), "must lie in -1..3"),
        (dict(arch=TINY, window_size=-1), "must be >= 0"),
    ],
)
def test_bad_arguments_say_what_fits(options, message):
    with pytest.raises(ValueError, match=message):
        ViT(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(rotary_base=0), "must be positive"),
        (dict(norm_eps=-1), "must be positive"),
        (dict(drop_path_rate=1.0), r"in \[0, 1\)"),
        (dict(patch_size=0), "must be positive"),
        (dict(out_indices=()), "out_indices is ()"),
        (dict(out_indices=1), "out_indices is 1"),
        (dict(global_attn_indexes=(0.5,)), "holds 0.5, expected whole numbers"),
        (dict(pretrain_img_size=-64), "no positive multiple"),
        (dict(arch=dict(embed_dims=32, depth=1, num_heads=2, mlp_ratio=float("inf"))), "must be positive"),
    ],
)
def test_values_that_would_give_nan_or_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        ViT(**{"arch": dict(embed_dims=32, depth=2, num_heads=2), **options})


def test_mmengines_initialiser_that_loads_by_half_is_refused():
    model = ViT(dict(embed_dims=32, depth=1, num_heads=2), init_cfg=dict(type="Pretrained", checkpoint="mae.pth"))
    with pytest.raises(ValueError, match="use type='vitdense.Pretrained'"):
        model.init_weights()
