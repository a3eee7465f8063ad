"""tools/dataset_converters: the subsets come out of COCO as this project's data sets are."""

import json

import cv2
import numpy as np
import pytest

TOOL = "tools/dataset_converters/coco_subsets.py"


@pytest.fixture(scope="module")
def coco(data_root, tmp_path_factory):
    """COCO's own layout, made of the subsets: photos, instances of more images than are taken, coloured segments."""
    root = tmp_path_factory.mktemp("coco")
    (root / "annotations").mkdir()
    for split in ("train2017", "val2017"):
        (root / split).mkdir()
        for folder in (data_root / "coco_mini" / split, data_root / "coco_semantic/images" / split):
            for photo in folder.iterdir():
                if not (root / split / photo.name).exists():
                    (root / split / photo.name).symlink_to(photo)
        instances = json.loads((data_root / f"coco_mini/annotations/instances_{split}.json").read_text())
        instances["images"].insert(0, dict(instances["images"][0], id=1, file_name="000000000001.jpg"))
        instances["annotations"].insert(0, dict(instances["annotations"][0], image_id=1))
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(instances))
        colours = root / f"annotations/panoptic_{split}"
        colours.mkdir()
        records = []
        for path in (data_root / "coco_semantic/masks" / split).iterdir():
            mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED).astype(int)
            halves = np.arange(mask.shape[1]) >= mask.shape[1] // 2  # two segments of a category that spans the image
            ids = np.where(mask > 0, mask * 70000 + halves * 300, 0)
            cv2.imwrite(str(colours / path.name), np.stack([ids >> 16, ids >> 8 & 255, ids & 255], -1).astype(np.uint8))
            segments = [dict(id=int(i), category_id=int(i) // 70000) for i in np.unique(ids) if i]
            records.append(dict(image_id=int(path.stem), file_name=path.name, segments_info=segments))
        (root / f"annotations/panoptic_{split}.json").write_text(json.dumps(dict(annotations=records)))
    return root


def test_the_subsets_are_those_of_the_data_sets(coco, data_root, run_tool, tmp_path):
    result = run_tool(TOOL, coco, "--out", tmp_path)
    assert result.returncode == 0, (result.stdout + result.stderr)[-2000:]
    assert (tmp_path / "coco_semantic/everyday.json").read_text().split() == (
        (data_root / "coco_semantic/everyday.json").read_text().split()
    )
    for split, photos, masks in (("train2017", 80, 100), ("val2017", 76, 100)):
        name = f"coco_mini/annotations/instances_{split}.json"
        found, expected = (json.loads((root / name).read_text()) for root in (tmp_path, data_root))
        assert found["images"] == expected["images"] and len(found["images"]) == photos
        assert found["annotations"] == expected["annotations"] and found["categories"] == expected["categories"]
        assert len(list((tmp_path / "coco_mini" / split).iterdir())) == photos
        written = sorted((tmp_path / "coco_semantic/masks" / split).iterdir())
        assert len(written) == masks
        for path in written:
            wanted = data_root / "coco_semantic/masks" / split / path.name
            assert (cv2.imread(str(path), -1) == cv2.imread(str(wanted), -1)).all(), path.name
            photo = path.with_suffix(".jpg").name
            one, other = (root / "coco_semantic/images" / split / photo for root in (tmp_path, data_root))
            assert one.read_bytes() == other.read_bytes()


def test_what_is_missing_or_in_the_way(coco, refused, tmp_path):
    message = refused(TOOL, tmp_path, "--out", tmp_path / "out")
    assert "instances_train2017.json is not there" in message and "cocodataset.org" in message
    (tmp_path / "coco_mini").mkdir()
    assert "coco_mini exists already" in refused(TOOL, coco, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["coco_mini"]
