"""The device's preprocessing is that of the training pipeline, on real images, by the configs themselves."""

import shutil

import cv2
import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.registry import MODELS, init_default_scope

from deploy.io import read_image
from deploy.preprocess import Preprocessor
from vitdense.config import load_config
from vitdense.export.spec import input_spec


def with_orientation(source, destination, orientation):
    """Copies a JPEG with an EXIF orientation in front."""
    exif = (
        b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00"
        + bytes([orientation])
        + b"\x00" * 7
    )
    content = source.read_bytes()
    destination.write_bytes(content[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + content[2:])


@pytest.fixture(scope="module")
def images(data_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    photos = sorted((data_root / "coco_semantic/images/val2017").iterdir())[:4]
    for photo in photos:
        shutil.copy(photo, folder)
    for orientation in (3, 6, 8):
        with_orientation(photos[0], folder / f"turned{orientation}.jpg", orientation)
    grey = cv2.imread(str(photos[1]), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(folder / "grey.png"), grey[:333, :257])
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    "config", ["configs/vitseg/vits-dinov2_fcn_everyday.py", "configs/vitdet/vits-dinov2_gfl_bccd.py"]
)
def test_at_most_one_grey_level_apart(images, config):
    cfg = load_config(config)
    dataset = cfg.test_dataloader.dataset
    shape = next(step.scale for step in dataset.pipeline if step.type == "Resize")[::-1]
    spec = input_spec(cfg, shape)
    init_default_scope(cfg.default_scope)
    pipeline = Compose([step for step in dataset.pipeline if step.type != "LoadAnnotations"])
    preprocessor = MODELS.build(cfg.model.data_preprocessor)
    compared = 0
    for path in images:
        packed = pipeline(dict(img_path=str(path), img_id=0, instances=[]))
        batch = preprocessor(dict(inputs=[packed["inputs"]], data_samples=[packed["data_samples"]]), False)
        expected = batch["inputs"][0]
        expected = expected.numpy() if isinstance(expected, torch.Tensor) else expected
        found = Preprocessor(spec)(read_image(path))[0][0]
        height, width = packed["data_samples"].img_shape
        if height > shape[0] or width > shape[1]:
            continue  # keep_ratio takes the scale for long and short edge; a static shape cannot turn with the image
        levels = np.abs(found[:, :height, :width] - expected[:, :height, :width]) * np.array(spec.std)[:, None, None]
        assert levels.max() <= 1, path.name
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cfg: cfg.test_dataloader.dataset.pipeline.insert(1, dict(type="Pad", size=(9, 9))), r"\['Pad'\]"),
        (lambda cfg: cfg.test_dataloader.dataset.pipeline.pop(1), "has no Resize"),
        (lambda cfg: cfg.test_dataloader.dataset.pipeline[1].update(interpolation="bicubic"), "must be bilinear"),
        (lambda cfg: cfg.model.data_preprocessor.pop("mean"), "needs mean and std"),
    ],
)
def test_what_the_device_does_not_do_is_refused(change, message):
    cfg = load_config("configs/vitseg/vits-dinov2_fcn_everyday.py")
    change(cfg)
    with pytest.raises(ValueError, match=message):
        input_spec(cfg, (448, 448))
