"""ViTDet's LVIS recipe on real images: COCO's boxes under LVIS's layout, federated loss, LVIS's own metric."""

import json
import re

import pytest

pytest.importorskip("lvis")
HEAD = "model.roi_head."
SMALL = [
    "model.backbone.init_cfg=None",
    "model.backbone.arch=tiny",
    "model.neck.in_channels=192",
    "model.neck.out_channels=32",
    "model.rpn_head.in_channels=32",
    "model.rpn_head.feat_channels=32",
    f"{HEAD}bbox_roi_extractor.out_channels=32",
    f"{HEAD}mask_roi_extractor.out_channels=32",
    f"{HEAD}mask_head.in_channels=32",
    f"{HEAD}mask_head.conv_out_channels=32",
    *[
        f"{HEAD}bbox_head.{stage}.{width}"
        for stage in range(3)
        for width in ("in_channels=32", "conv_out_channels=32", "fc_out_channels=64")
    ],
    "model.data_preprocessor.pad_size_divisor=256",
    "model.train_cfg.rpn_proposal.max_per_img=200",
    "model.test_cfg.rpn.max_per_img=50",
    "train_dataloader.dataset.dataset.pipeline.3.scale=(256,256)",
    "train_dataloader.dataset.dataset.pipeline.3.ratio_range=(0.9,1.1)",
    "train_dataloader.dataset.dataset.pipeline.4.crop_size=(256,256)",
    "val_dataloader.dataset.pipeline.1.scale=(256,256)",
    "train_dataloader.num_workers=0",
    "train_dataloader.persistent_workers=False",
    "train_dataloader.batch_size=1",
]


@pytest.fixture(scope="module")
def lvis_root(data_root, tmp_path_factory):
    """coco_mini as LVIS v1: 1203 categories, of which the first 80 are COCO's."""
    root = tmp_path_factory.mktemp("lvis")
    (root / "annotations").mkdir()
    for split, name, count in (("train2017", "train", 20), ("val2017", "val", 4)):
        (root / split).symlink_to(data_root / "coco_mini" / split)
        coco = json.loads((data_root / f"coco_mini/annotations/instances_{split}.json").read_text())
        images = coco["images"][:count]
        kept = {image["id"] for image in images}
        numbers = {item["id"]: i + 1 for i, item in enumerate(coco["categories"])}
        boxes = [dict(item, category_id=numbers[item["category_id"]]) for item in coco["annotations"]]
        boxes = [item for item in boxes if item["image_id"] in kept and not item["iscrowd"]]
        for image in images:
            present = {item["category_id"] for item in boxes if item["image_id"] == image["id"]}
            image |= dict(
                coco_url=f"http://images.cocodataset.org/{split}/{image['file_name']}",
                neg_category_ids=sorted(set(range(1, 81)) - present),
                not_exhaustive_category_ids=[],
            )
        categories = [
            dict(
                id=i,
                name=f"class{i}",
                frequency="frc"[i % 3],
                image_count=len({item["image_id"] for item in boxes if item["category_id"] == i}) + 1,
            )
            for i in range(1, 1204)
        ]
        content = dict(images=images, annotations=boxes, categories=categories)
        (root / f"annotations/lvis_v1_{name}.json").write_text(json.dumps(content))
    return root


def test_cascade_trains_and_is_scored(lvis_root, run_tool, tmp_path):
    result = run_tool(
        "tools/train.py",
        "configs/vitdet/vitdet-b_cascade-mask-rcnn_lvis.py",
        "--work-dir",
        tmp_path,
        "--cfg-options",
        f"train_dataloader.dataset.dataset.data_root={lvis_root}/",
        f"val_dataloader.dataset.data_root={lvis_root}/",
        f"val_evaluator.ann_file={lvis_root}/annotations/lvis_v1_val.json",
        *[f"{HEAD}bbox_head.{i}.loss_cls.ann_file={lvis_root}/annotations/lvis_v1_train.json" for i in range(3)],
        "train_cfg.max_iters=2",
        "train_cfg.val_interval=2",
        "default_hooks.logger.interval=1",
        *SMALL,
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-3000:]
    first = [float(value) for value in re.findall(r"s\d.loss_cls: ([\d.]+)", output)][:3]
    # Background takes one of the 50 places: 49 classes with a probability of a half each.
    assert first == pytest.approx([49 * 0.6931] * 3, rel=0.01)
    assert re.search(r"Iter\(val\) \[4/4\].*lvis/bbox_AP: ", output)
