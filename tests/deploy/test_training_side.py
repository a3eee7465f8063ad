"""`deploy` against the code that the models are trained with: MMCV, MMSegmentation, torch."""

import struct

import cv2
import numpy as np
import pytest

from deploy.io import read_image
from deploy.postprocess import segmentation_map
from deploy.preprocess import Geometry, Preprocessor

torch = pytest.importorskip("torch")
mmcv = pytest.importorskip("mmcv")
mmseg_models = pytest.importorskip("mmseg.models")
mmseg_structures = pytest.importorskip("mmseg.structures")


def _random_image(size):
    return np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)


@pytest.mark.parametrize("orientation", [1, 6])
def test_images_are_read_alike(tmp_path, photo, orientation):
    jpeg = cv2.imencode(".jpg", photo)[1].tobytes()
    body = b"Exif\x00\x00MM" + struct.pack(">HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:])
    np.testing.assert_array_equal(read_image(path), mmcv.imread(str(path), flag="color", backend="cv2"))
    cv2.imwrite(str(tmp_path / "grey.png"), photo[..., 0])
    expected = mmcv.imread(str(tmp_path / "grey.png"), flag="color", backend="cv2")
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png"), expected)


@pytest.mark.parametrize("color_order", ["RGB", "BGR"])
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
@pytest.mark.parametrize("size", [(256, 309), (61, 83), (48, 64), (20, 100)])
def test_the_tensor_is_bit_equal_to_the_data_preprocessor(size, resize, color_order, new_input):
    spec = new_input(resize=resize, color_order=color_order)
    image = _random_image(size)
    if resize == "stretch":
        resized = mmcv.imresize(image, (64, 48), interpolation="bilinear", backend="cv2")
    else:
        resized = mmcv.imrescale(image, (64, 48), interpolation="bilinear", backend="cv2")
    normalise = mmseg_models.SegDataPreProcessor(
        mean=list(spec.mean),
        std=list(spec.std),
        bgr_to_rgb=color_order == "RGB",
        size=(48, 64),
        pad_val=0,
        test_cfg={"size": (48, 64)},
    )
    planes = torch.from_numpy(np.ascontiguousarray(resized.transpose(2, 0, 1)))
    samples = [mmseg_structures.SegDataSample()]
    expected = normalise({"inputs": [planes], "data_samples": samples}, False)["inputs"].numpy()
    np.testing.assert_array_equal(Preprocessor(spec)(image)[0], expected)


@pytest.mark.parametrize("geometry", [Geometry((61, 83), (47, 64)), Geometry((300, 211), (48, 34))])
def test_the_class_map_is_that_of_torch(geometry):
    logits = np.random.default_rng(0).normal(size=(19, 12, 16)).astype(np.float32)

    def resize(planes, size):
        return torch.nn.functional.interpolate(planes, size, mode="bilinear", align_corners=False)

    height, width = geometry.resized_size
    enlarged = resize(torch.from_numpy(logits)[None], (48, 64))[:, :, :height, :width]
    scores = resize(enlarged, geometry.original_size)[0]
    best = scores.topk(2, dim=0).values
    clear = (best[0] - best[1] > 1e-4).numpy()
    result = segmentation_map(logits, geometry, (48, 64))
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(result[clear], scores.argmax(0).numpy()[clear])
