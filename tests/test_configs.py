"""Every config loads and builds; ours work in the inferencers of both code bases."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

from vitdense.config import load_config
from vitdense.engine.build import build_model, build_shapes, dataset_metainfo
from vitdense.models import SimpleFeaturePyramid, ViT

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = [path for path in sorted((ROOT / "configs").rglob("*.py")) if "_base_" not in path.parts]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_config_loads_builds_and_explains_itself(path):
    text = path.read_text()
    assert text.startswith('"""'), "a config's docstring says what it is, the command, and what to expect"
    assert f"python tools/train.py {path.relative_to(ROOT)}" in text
    cfg = load_config(path)
    model = build_shapes(cfg)
    assert isinstance(model.backbone, ViT) or "comparison" in path.parts
    classes = dataset_metainfo(cfg).get("classes")  # none where a teacher is all there is
    assert ({len(classes)} if classes else set()) == class_counts(cfg.model)


def class_counts(config):
    """The different ``num_classes`` of a model's heads."""
    found = set()
    for key, value in config.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found |= class_counts(item)
        if key == "num_classes":
            found.add(value)
    return found


@pytest.mark.parametrize("scope", ["mmdet", "mmseg"])
def test_one_entry_works_in_both_code_bases(scope):
    init_default_scope(scope)
    backbone = MODELS.build(dict(type="vitdense.ViT", arch=dict(embed_dims=32, depth=2, num_heads=2), window_size=4))
    neck = MODELS.build(dict(type="vitdense.SimpleFeaturePyramid", in_channels=32, out_channels=16))
    assert isinstance(backbone, ViT) and isinstance(neck, SimpleFeaturePyramid)
    with torch.no_grad():
        outs = neck(backbone(torch.randn(1, 3, 100, 130)))
    assert [tuple(out.shape[-2:]) for out in outs] == [(28, 36), (14, 18), (7, 9), (3, 4), (2, 2)]


def test_vitdet_recipe_has_the_published_figures():
    cfg = load_config(ROOT / "configs/vitdet_coco.py")
    assert cfg.train_cfg.max_iters == 184375 == round(100 * 118000 / 64)
    assert cfg.param_scheduler[1].milestones == [163889, 177546] and cfg.param_scheduler[0].end == 250
    assert cfg.optim_wrapper.optimizer.lr == 1e-4 and cfg.optim_wrapper.optimizer.weight_decay == 0.1
    assert cfg.optim_wrapper.paramwise_cfg.decay_rate == 0.7 and cfg.model.backbone.drop_path_rate == 0.1
    model = build_model(cfg)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-6}, "MMCV fills in 1e-5 where a config is silent"
    assert [block.windowed for block in model.backbone.blocks] == [True, True, False] * 4
    tables = [tuple(block.attn.rel_pos.height.shape) for block in model.backbone.blocks]
    assert tables == [(27, 64), (27, 64), (127, 64)] * 4
    assert cfg.model.backbone.init_cfg.source == "mae"
    assert len(model.roi_head.bbox_head.shared_convs) == 4 and len(model.roi_head.bbox_head.shared_fcs) == 1


def test_mmseg_inferencer(small_segmenter):
    from mmseg.apis import MMSegInferencer

    inferencer = MMSegInferencer(str(small_segmenter.config), str(small_segmenter.checkpoint), device="cpu")
    image = next((small_segmenter.data / "images" / "val").iterdir())
    result = inferencer(str(image), return_datasamples=True)
    assert set(np.unique(result.pred_sem_seg.data)) <= {0, 1, 2, 3}
    assert inferencer.model.dataset_meta["classes"] == ("ground", "disc", "square", "triangle")


def test_det_inferencer(tmp_path):
    from mmdet.apis import DetInferencer

    cfg = load_config(ROOT / "configs/vitdet/vits-dinov2_gfl_bccd.py")
    cfg.model.backbone.init_cfg = None
    torch.manual_seed(0)
    model = build_model(cfg)
    checkpoint = tmp_path / "detector.pth"
    torch.save({"state_dict": model.state_dict(), "meta": {"dataset_meta": dataset_metainfo(cfg)}}, checkpoint)
    cfg.dump(str(tmp_path / "config.py"))
    inferencer = DetInferencer(str(tmp_path / "config.py"), str(checkpoint), device="cpu")
    image = np.random.default_rng(0).integers(0, 256, (200, 260, 3), dtype=np.uint8)
    predictions = inferencer(image, pred_score_thr=0.0)["predictions"][0]
    assert set(predictions["labels"]) <= {0, 1, 2} and len(predictions["bboxes"]) == len(predictions["scores"]) > 0
