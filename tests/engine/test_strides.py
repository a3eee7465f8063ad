"""Heads whose strides are not those of the maps are refused before anything is built."""

from pathlib import Path

import pytest

from vitdense.config import load_config
from vitdense.engine.build import build_model
from vitdense.engine.strides import check_strides

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*/*_*.py")), ids=lambda path: path.stem)
def test_configs_here_agree(path):
    check_strides(load_config(path))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("patch_size", 14, r"anchor_generator.strides=\[8, 16, 32\], but a patch of 14 .* stride \[7, 14, 28\]"),
        ("scales", (4, 2, 1), r"strides=\[8, 16, 32\] .* stride \[4, 8, 16\]"),
    ],
)
def test_others_are_named(option, value, message):
    cfg = load_config(ROOT / "configs/vitdet/vits-dinov2_gfl_bccd.py")
    part = cfg.model.backbone if option == "patch_size" else cfg.model.neck
    part[option] = value
    with pytest.raises(ValueError, match=message.replace(" .* ", ".* ")):
        build_model(cfg)


def test_every_head_of_a_two_stage_detector_is_looked_at():
    cfg = load_config(ROOT / "configs/vitdet_coco.py")
    check_strides(cfg)
    for strides in ([8, 16, 32, 64], [4, 8, 16, 30]):  # the first are maps too, but the extractor takes those from 4 on
        cfg.model.roi_head.mask_roi_extractor.featmap_strides = strides
        with pytest.raises(ValueError, match=r"model.roi_head.mask_roi_extractor.featmap_strides=\["):
            check_strides(cfg)
