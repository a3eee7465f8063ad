"""AP of a detector on the device against MMDetection's metric, and data that do not match."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoMetric
from mmengine.config import Config

from deploy.detections import Detections
from vitdense.config import load_config
from vitdense.evaluation import Score, largest_drop
from vitdense.evaluation.detection import DetectionData, evaluate_detection, object_agreement

ROOT = "configs/_base_/datasets"


class Found:
    """A detector that finds what it is told, by path."""

    def __init__(self, by_path):
        self.by_path = by_path

    def predict(self, path):
        return SimpleNamespace(detections=self.by_path[path])


def imperfect(data, seed, keep=0.8, masks=False):
    """The truth with noise: shifted boxes, wrong classes, misses, inventions."""
    rng = np.random.default_rng(seed)
    found = {}
    for path, info in zip(data.paths(), data.infos, strict=True):
        truth = [item for item in info["instances"] if rng.random() < keep]
        boxes = np.array([item["bbox"] for item in truth], np.float32).reshape(-1, 4)
        boxes = np.concatenate([boxes + rng.normal(0, 3, boxes.shape), rng.uniform(0, 60, (3, 4)) + [0, 0, 60, 60]])
        labels = np.array([item["bbox_label"] for item in truth] + [0, 0, 1])
        labels = np.where(rng.random(len(labels)) < 0.1, 0, labels)
        pixels = None
        if masks:
            pixels = np.zeros((len(boxes), info["height"], info["width"]), bool)
            for place, (left, top, right, bottom) in enumerate(boxes.clip(0).astype(int)):
                pixels[place, top : bottom + 1, left : right + 1] = True
        scores = rng.random(len(boxes)).astype(np.float32)
        found[path] = Detections(boxes.astype(np.float32), scores, labels.astype(np.int64), pixels, True)
    return Found(found)


def by_mmdetection(data, detector, kinds, ann_file=None):
    metric = CocoMetric(ann_file=ann_file, metric=kinds, classwise=False)
    metric.dataset_meta = data.dataset.metainfo
    for path, info in zip(data.paths(), data.infos, strict=True):
        objects = detector.by_path[path]
        found = {
            "bboxes": torch.from_numpy(objects.boxes),
            "scores": torch.from_numpy(objects.scores),
            "labels": torch.from_numpy(objects.labels),
        }
        if objects.masks is not None:
            found["masks"] = torch.from_numpy(np.stack(list(objects.masks)))
        sample = {"img_id": info["img_id"], "ori_shape": (info["height"], info["width"]), "pred_instances": found}
        metric.process({}, [{**sample, "instances": info["instances"]}])
    return metric.evaluate(len(data.paths()))


@pytest.fixture
def bccd(data_root, monkeypatch):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    return load_config("configs/fixtures/vit48_gfl_bccd.py", None)


@pytest.fixture
def coco(data_root, monkeypatch):
    """The validation images of coco_mini, with their annotation file."""
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    cfg = Config.fromfile(f"{ROOT}/coco_mini_512.py")
    cfg.default_scope = "mmdet"
    cfg.test_dataloader.dataset = cfg.test_dataloader.dataset.datasets[1]
    cfg.test_evaluator = dict(
        type="CocoMetric",
        ann_file=str(data_root / "coco_mini/annotations/instances_val2017.json"),
        metric=["bbox", "segm"],
    )
    return cfg


def test_boxes_score_as_in_mmdetection(bccd):
    data = DetectionData(bccd)
    detector = imperfect(data, 0)
    (score,), share = evaluate_detection([detector], data)
    theirs = by_mmdetection(data, detector, "bbox")
    assert 20 < score.values["box_ap"] < 80 and score.images == 72 and share is None
    for ours, name in (("box_ap", "bbox_mAP"), ("box_ap50", "bbox_mAP_50"), ("box_ap75", "bbox_mAP_75")):
        assert score.values[ours] == pytest.approx(100 * theirs[f"coco/{name}"], abs=0.051)
    assert set(score.by_class) == {"RBC", "WBC", "Platelets"} and "mask_ap" not in score.values
    assert np.mean(list(score.by_class.values())) == pytest.approx(score.values["box_ap"])


def test_masks_score_as_in_mmdetection_with_the_annotation_file(coco):
    data = DetectionData(coco)
    detector = imperfect(data, 1, masks=True)
    (score,), _ = evaluate_detection([detector], data)
    theirs = by_mmdetection(data, detector, ["bbox", "segm"], coco.test_evaluator.ann_file)
    for kind, name in (("box", "bbox"), ("mask", "segm")):
        for ours, suffix in (("ap", ""), ("ap50", "_50"), ("ap75", "_75")):
            ap = 100 * theirs[f"coco/{name}_mAP{suffix}"]
            assert score.values[f"{kind}_{ours}"] == pytest.approx(ap, abs=0.051)
    assert 5 < score.values["mask_ap"] < score.values["box_ap"]


def test_the_data_set_itself_serves_where_no_file_is_named(coco):
    with_file = DetectionData(coco)
    detector = imperfect(with_file, 2, masks=True)
    coco.test_evaluator = dict(type="vitdense.OperatingPointMetric")
    scores = [evaluate_detection([detector], data)[0][0] for data in (with_file, DetectionData(coco))]
    for name, value in scores[0].values.items():
        assert scores[1].values[name] == pytest.approx(value, abs=0.5)  # MMDetection drops boxes below a pixel


def test_classes_keep_their_scores_whatever_their_ids(bccd):
    data = DetectionData(bccd)
    detector = imperfect(data, 5)
    expected = evaluate_detection([detector], data)[0][0].by_class
    renumbered = {0: 9, 1: 4, 2: 6}
    data.categories = [renumbered[index] for index in data.categories]
    for entry in data.truth.dataset["annotations"]:
        entry["category_id"] = renumbered[entry["category_id"]]
    data.truth.dataset["categories"] = [{"id": value, "name": str(value)} for value in renumbered.values()]
    data.truth.createIndex()
    found = evaluate_detection([detector], data)[0][0].by_class
    assert len(set(expected.values())) == 3 and found == pytest.approx(expected)


def test_masks_that_find_nothing_score_nothing(coco):
    data = DetectionData(coco)
    nothing = np.zeros((0, 8, 8), bool)
    empty = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), nothing, True)
    (score,), _ = evaluate_detection([Found(dict.fromkeys(data.paths(), empty))], data)
    assert score.values["mask_ap"] == 0


def test_nothing_found_scores_nothing(bccd):
    data = DetectionData(bccd)
    empty = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), None, True)
    (score,), _ = evaluate_detection([Found(dict.fromkeys(data.paths(), empty))], data)
    assert score.values["box_ap"] == 0 and score.by_class["WBC"] == 0


def test_agreement_counts_objects_over_all_images(bccd):
    data = DetectionData(bccd)
    first, second = imperfect(data, 3), imperfect(data, 4)
    _, share = evaluate_detection([first, second], data)
    assert 0.1 < share < 0.9 and share == object_agreement(first, second, data.paths())
    assert evaluate_detection([first, first], data)[1] == 1


def test_an_annotation_file_of_other_images_is_refused(coco, tmp_path):
    content = json.loads(Path(coco.test_evaluator.ann_file).read_text())
    dropped = content["images"].pop()["id"]
    content["annotations"] = [item for item in content["annotations"] if item["image_id"] != dropped]
    coco.test_evaluator.ann_file = str(tmp_path / "part.json")
    (tmp_path / "part.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="76 images and 80 classes; .* knows 75 and 80 .* has 75 images"):
        DetectionData(coco)


def test_lvis_is_not_scored_as_coco(coco):
    coco.test_evaluator.type = "vitdense.LVISFixedAPMetric"
    with pytest.raises(ValueError, match="LVISFixedAPMetric, whose truth leaves most classes of an image open"):
        DetectionData(coco)


def test_the_largest_fall_decides():
    before = Score({"box_ap": 50.0, "box_ap50": 70.0, "mask_ap": 40.0}, {}, "ap", 3)
    after = Score({"box_ap": 49.9, "box_ap50": 60.0, "mask_ap": 39.0}, {}, "ap", 3)
    assert largest_drop(before, after) == ("mask_ap", 1.0)
