"""Grouped masks, drawn shapes, and the check that data are there."""

import json

import cv2
import numpy as np
import pytest
from mmengine.config import Config

from vitdense.config import load_config
from vitdense.datasets import check_dataset_files
from vitdense.datasets.generated import CLASSES, write_shapes
from vitdense.datasets.grouped import read_grouping
from vitdense.engine.build import build_test_dataset


@pytest.fixture
def grouping(tmp_path):
    path = tmp_path / "groups.json"
    path.write_text(json.dumps({"classes": ["a", "b"], "category_to_class": {"3": "b", "7": "a", "200": "b"}}))
    return path


def test_raw_ids_are_grouped_and_the_rest_ignored(grouping):
    classes, label_map = read_grouping(grouping)
    assert classes == ("a", "b") and len(label_map) == 256
    assert {raw: label for raw, label in label_map.items() if label != 255} == {3: 1, 7: 0, 200: 1}
    assert label_map[0] == 255


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"classes": ["a"]}', '{"classes": ["a"], "category_to_class": {"1": "z"}}']
)
def test_bad_grouping_files(tmp_path, content):
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="expected {'classes'"):
        read_grouping(path)
    with pytest.raises(FileNotFoundError, match="absent.json does not exist"):
        read_grouping(tmp_path / "absent.json")


def test_masks_of_the_real_data_become_the_twelve_classes(data_root, monkeypatch):
    from mmengine.registry import TRANSFORMS

    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    dataset = build_test_dataset(load_config("configs/vitseg/vits-dinov2_fcn_everyday.py"))
    assert len(dataset) == 100
    info = dataset.get_data_info(3)
    raw = cv2.imread(info["seg_map_path"], cv2.IMREAD_UNCHANGED)
    found = TRANSFORMS.build(dict(type="mmseg.LoadAnnotations"))(info)["gt_seg_map"]
    groups = json.loads((data_root / "coco_semantic" / "everyday.json").read_text())
    for value in np.unique(raw):
        expected = groups["category_to_class"].get(str(value))
        expected = 255 if expected is None else groups["classes"].index(expected)
        assert (found[raw == value] == expected).all()


def test_classes_of_config_and_file_must_agree(data_root, monkeypatch):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    cfg = load_config("configs/vitseg/vits-dinov2_fcn_everyday.py")
    cfg.test_dataloader.dataset.metainfo.classes = ("person", "rest")
    with pytest.raises(ValueError, match="everyday.json has the classes"):
        build_test_dataset(cfg)


def test_drawn_shapes_repeat_and_hold_every_class(tmp_path):
    for folder in ("first", "second"):
        write_shapes(tmp_path / folder, num_train=6, num_val=2, size=96)
    names = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*"))
    assert len(names) == 16
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    masks = [cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in (tmp_path / "first").rglob("*.png")]
    assert set(np.unique(masks)) == set(range(len(CLASSES)))
    with pytest.raises(ValueError, match="at least 1 image"):
        write_shapes(tmp_path / "none", num_train=0)


def test_check_walks_through_wrappers():
    from mmengine.config import Config

    leaf = dict(type="CocoDataset", data_root="nowhere/coco", ann_file="a.json", data_prefix=dict(img="train"))
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type="RepeatDataset", dataset=dict(datasets=[leaf])))))
    with pytest.raises(ValueError, match=r"train_dataloader\.dataset\.dataset\.datasets\.0 .*nowhere/coco/a\.json"):
        check_dataset_files(cfg, ("train",))
    check_dataset_files(cfg, ("test",))


def test_index_masks_with_ids_that_are_ignored(data_root, monkeypatch):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    cfg = load_config("configs/vitseg/vits-dinov2_linear_camvid.py")
    dataset = build_test_dataset(cfg)
    assert len(dataset) == 171 and dataset.metainfo["classes"][3] == "road"
    sample = dataset[0]
    raw = cv2.imread(sample["data_samples"].seg_map_path, cv2.IMREAD_UNCHANGED)
    found = sample["data_samples"].gt_sem_seg.data[0].numpy()
    assert 11 in raw and np.array_equal(found, np.where(raw == 11, 255, raw))


def test_ignored_ids_are_none_of_a_class():
    from vitdense.datasets.index_masks import IndexMaskDataset

    with pytest.raises(ValueError, match=r"ignored_ids=\[1\] must lie in 2..255"):
        IndexMaskDataset(ignored_ids=[1, 2], metainfo=dict(classes=("a", "b")), lazy_init=True)


def coco_config(folder, annotations, **changes):
    """A config whose training data are an annotation file in COCO's format."""
    (folder / "a.json").write_text(annotations if isinstance(annotations, str) else json.dumps(annotations))
    dataset = dict(type="CocoDataset", data_root=str(folder), ann_file="a.json", data_prefix=dict(img=""), **changes)
    return Config(dict(train_dataloader=dict(dataset=dataset)))


COCO = {"images": [], "annotations": [{"bbox": [0, 0, 5, 5]}], "categories": [{"id": 1, "name": "RBC"}]}


def test_annotations_that_do_not_fit_the_config(tmp_path):
    masks = [dict(type="LoadAnnotations", with_bbox=True, with_mask=True)]
    for content, changes, message in (
        (COCO, dict(metainfo=dict(classes=("person", "car"))), r"none of the 2 classes of .*\(person, car.*\(RBC"),
        (COCO, dict(pipeline=masks), "has boxes and no masks.*vits-dinov2_gfl_small-coco.py"),
        ("{", {}, "is no annotation file in COCO's format"),
        ("[]", {}, "is no annotation file in COCO's format"),
    ):
        with pytest.raises(ValueError, match=message):
            check_dataset_files(coco_config(tmp_path, content, **changes), ["train"])
    polygons = {**COCO, "annotations": [{"bbox": [0, 0, 5, 5], "segmentation": [[0, 0, 5, 0, 5, 5]]}]}
    good = dict(metainfo=dict(classes=("RBC",)), pipeline=masks)
    check_dataset_files(coco_config(tmp_path, polygons, **good), ["train"])
