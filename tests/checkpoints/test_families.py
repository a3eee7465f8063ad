"""What a family implies: names shared with others, conventions, heads, and what ViTDet adds to it."""

import pytest
import torch

from tests.checkpoints.oracles import LIMIT, build, error_of, found_map, image_of, oracle_map, oracle_of, to_original
from vitdense.checkpoints import load_pretrained, vit_from_checkpoint
from vitdense.models import ViT


def test_a_shared_layout_asks_where_the_family_matters():
    state = oracle_of("vit").state_dict()
    choice = r"source='vit' or one of \['deit', 'mae', 'dino'\]"
    with pytest.raises(ValueError, match=choice):  # the ViT that is built resizes its positions at run time
        vit_from_checkpoint(state, num_heads=4)
    sizes = dict(embed_dims=48, depth=3, num_heads=4, mlp_ratio=2)
    options = dict(with_cls_token=True, final_norm=True, interpolate_antialias=True)
    report = load_pretrained(ViT(sizes, pretrain_img_size=64, **options), state)
    assert report.source == "vit" and "the names are those of vit, deit, mae, dino: taken as the first" in str(report)
    with pytest.raises(ValueError, match=choice):
        load_pretrained(ViT(sizes, pretrain_img_size=96, **options), state)
    tables = {}
    for source in ("vit", "deit", "mae", "dino"):
        larger, report = build(state, True, source, pretrain_img_size=96)
        assert report.interpolated == {"pos_embed.weight": "(4, 4) -> (6, 6)"} and not report.notes
        tables[source] = larger.pos_embed.weight
    assert torch.equal(tables["deit"], tables["mae"])
    assert not torch.allclose(tables["dino"], tables["mae"], atol=1e-3)


def test_conventions_of_the_family_are_compared_with_the_model():
    state = oracle_of("dinov3").state_dict()
    for change, message in (
        (dict(pos_embed="none"), "needs rotary positions: set pos_embed='rotary'"),
        (dict(rotary_base=1e4), "set rotary_base=100"),
    ):
        with pytest.raises(ValueError, match=message):
            build(state, False, **change)
    with pytest.raises(ValueError, match="has no rotary positions: set pos_embed='learned'"):
        build(oracle_of("dinov2").state_dict(), False, pos_embed="rotary")
    _, report = build(state, False, norm_eps=1e-6)
    assert report.notes == ["norm_eps is 1e-06, the source's 1e-05"]
    original = to_original("dinov2", oracle_of("dinov2").state_dict())
    _, report = build(original, False, interpolate_offset=0.0)
    assert report.notes == ["interpolate_offset is 0.0, the source's 0.1: at other sizes its positions differ"]
    with pytest.raises(ValueError, match="expected the periods of the base 100"):
        wrong = to_original("dinov3", state) | {"rope_embed.periods": torch.ones(3)}
        build({key.replace("mlp.up", "mlp.fc1").replace("mlp.down", "mlp.fc2"): v for key, v in wrong.items()}, False)


def test_vitdet_without_tables_keeps_its_windows():
    state = {key: value for key, value in oracle_of("vitdet").state_dict().items() if "rel_pos" not in key}
    with pytest.raises(ValueError, match="do not show their windows, and a depth of 3 is none of the published"):
        build(state, False)


def test_what_vitdet_adds_starts_where_it_changes_nothing():
    oracle, image = oracle_of("vit"), image_of(64)
    model, report = build(oracle.state_dict(), True, "vit", use_rel_pos=True, residual_block_indexes=(1,))
    assert len(report.initialised) == 3 * 2 + 9
    assert "15 not in the source, at their initial values" in str(report)
    assert error_of(found_map(model, image), oracle_map(oracle, "vit", image)) <= LIMIT
    # A file that has some of them must have all.
    state = model.state_dict()
    del state["blocks.1.attn.rel_pos.height"]
    with pytest.raises(ValueError, match=r"missing \(1\): blocks.1.attn.rel_pos.height"):
        load_pretrained(model, state)


def test_heads_have_to_be_known():
    with pytest.raises(ValueError, match="width 48 is none of the sizes known for them .*give num_heads"):
        vit_from_checkpoint(oracle_of("vit").state_dict(), "mae")
    model, _ = vit_from_checkpoint(oracle_of("sam").state_dict())  # read from the relative-position tables
    assert model.arch.num_heads == 4 and model.window_size == 4 and model.global_attn_indexes == (1,)
    model, _ = vit_from_checkpoint(oracle_of("beit").state_dict())
    assert model.arch.num_heads == 4


def test_names_that_mean_the_same_are_refused():
    state = to_original("vit", oracle_of("vit").state_dict())
    twice = {f"encoder.{key}": value for key, value in state.items()} | {
        "blocks.0.mlp.fc1.weight": state["blocks.0.mlp.fc1.weight"]
    }
    with pytest.raises(ValueError, match="are both blocks.0.mlp.fc1.weight of a ViT"):
        build(twice, True, "mae")


def test_beit_adds_shared_and_own_tables():
    state = oracle_of("beit").state_dict()
    shared = 0.1 * torch.randn(state["layers.1.relative_position_bias.relative_position_bias_table"].shape)
    model, _ = build({**state, "shared_position_bias.relative_position_bias_table": shared}, False)
    for i in range(3):
        own = state[f"layers.{i}.relative_position_bias.relative_position_bias_table"]
        torch.testing.assert_close(model.blocks[i].attn.rel_pos.table, own + shared)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("vit", "layers.0.mlp.fc1.weight", lambda v: (v * 9).to(torch.int8), "torch.int8; weights are floating-point"),
        ("vit", "layers.0.mlp.fc1.weight", lambda v: v * float("nan"), "holds NaN or infinity"),
        ("vit", "layers.0.mlp.fc1.weight", lambda v: v.to_sparse(), "torch.sparse_coo; expected a dense tensor"),
        ("vit", "layers.0.mlp.fc1.weight", lambda v: v.to("meta"), "is on the meta device"),
        ("vit", "layers.0.mlp.fc1.weight", lambda v: v.numpy(), "is a ndarray, expected a tensor"),
        ("vit", "layers.0.mlp.fc2.weight", lambda v: v[0, 0], "shapes that it never has"),
        (
            "vit",
            "layers.0.attention.q_proj.weight",
            lambda v: v[:40],
            r"\[\(40, 48\), \(48, 48\), .* for q, k",
        ),
        ("vit", "embeddings.position_embeddings", None, "no position table"),
        ("vit", "layers.3000000.layernorm_before.weight", torch.ones(48), "a block 3000000 but none 3"),
        ("vit", 0, torch.ones(1), "the name 0, expected a text"),
        ("deit", "embeddings.distillation_token", lambda v: v[0, 0, 0], r"is \(\), expected \(1, 1, 48\)"),
        ("dinov2", "layernorm.weight", None, "need LayerScale and a final norm"),
        ("dinov3", "model.layer.1.layer_scale2.lambda1", None, "lack .'blocks.1.ls2.gamma'"),
        ("sam", "vision_encoder.layers.0.attn.rel_pos_h", lambda v: v[:3], "shapes that it never has|of 3 sizes"),
    ],
)
def test_weights_that_no_file_of_the_family_holds(name, key, value, message):
    state = dict(oracle_of(name).state_dict())
    if value is None:
        del state[key]
    else:
        state[key] = value(state[key]) if callable(value) else value
    with pytest.raises(ValueError, match=message):
        build(state, False, "mae" if name == "vit" else "auto")


def test_num_heads_has_to_agree_with_the_weights():
    sam = oracle_of("sam").state_dict()
    for heads, message in ((0, "must be positive"), (2, "the weights show 4 heads")):
        with pytest.raises(ValueError, match=message):
            vit_from_checkpoint(sam, num_heads=heads)
    original = to_original("dinov3", oracle_of("dinov3").state_dict())
    original = {key.replace("mlp.up", "mlp.fc1").replace("mlp.down", "mlp.fc2"): v for key, v in original.items()}
    original["rope_embed.periods"] = 100 ** (torch.arange(3) / 3)
    assert vit_from_checkpoint(original)[0].arch.num_heads == 4  # three periods: heads of twelve channels
    with pytest.raises(ValueError, match="num_heads=2, but the weights show 4"):
        vit_from_checkpoint(original, num_heads=2)
    with pytest.raises(ValueError, match="the weights have 4 heads, the ViT 2"):
        vit_from_checkpoint(original, arch=dict(embed_dims=48, depth=3, num_heads=2, mlp_ratio=2))
