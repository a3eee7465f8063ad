"""Tests of deploy.io."""

import struct

import cv2
import numpy as np
import pytest

from deploy.io import list_images, read_image, write_image

# What a viewer does to the stored pixels for each value of the EXIF orientation tag.
TURNS = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: x.transpose(1, 0, 2)[:, ::-1],
    7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda x: x.transpose(1, 0, 2)[::-1],
}


def _with_orientation(jpeg: bytes, orientation: int, order: str) -> bytes:
    """Insert an APP1 segment whose TIFF directory holds nothing but the orientation (tag 0x0112, a short)."""
    mark = b"II" if order == "<" else b"MM"
    tiff = mark + struct.pack(f"{order}HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    body = b"Exif\x00\x00" + tiff
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, photo, orientation, order):
    jpeg = cv2.imencode(".jpg", photo)[1].tobytes()
    plain, turned = tmp_path / "plain.jpg", tmp_path / "turned.jpg"
    plain.write_bytes(jpeg)
    turned.write_bytes(_with_orientation(jpeg, orientation, order))
    np.testing.assert_array_equal(read_image(turned), TURNS[orientation](read_image(plain)))


def test_png_is_exact_and_bgr(tmp_path):
    blue = np.zeros((3, 4, 3), np.uint8)
    blue[..., 0] = 200
    write_image(tmp_path / "a.png", blue)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), blue)


def test_grey_alpha_and_sixteen_bits_become_three_channels_of_bytes(tmp_path, photo):
    grey = photo[..., 0]
    cv2.imwrite(str(tmp_path / "grey.png"), grey)
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png"), np.repeat(grey[..., None], 3, axis=2))
    alpha = np.dstack([photo, np.zeros(photo.shape[:2], np.uint8)])
    cv2.imwrite(str(tmp_path / "alpha.png"), alpha)
    np.testing.assert_array_equal(read_image(tmp_path / "alpha.png"), photo)
    cv2.imwrite(str(tmp_path / "deep.png"), photo.astype(np.uint16) * 257)
    deep = read_image(tmp_path / "deep.png")
    assert deep.dtype == np.uint8
    np.testing.assert_allclose(deep.astype(int), photo.astype(int), atol=1)


def test_any_path_name(tmp_path, photo):
    path = tmp_path / "Straße 图片 é.png"
    write_image(path, photo)
    np.testing.assert_array_equal(read_image(path), photo)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_an_image(tmp_path, photo):
    with pytest.raises(FileNotFoundError, match="no image .*none.png"):
        read_image(tmp_path / "none.png")
    with pytest.raises(ValueError, match="is a folder"):
        read_image(tmp_path)
    (tmp_path / "empty.png").touch()
    with pytest.raises(ValueError, match=r"empty\.png is empty"):
        read_image(tmp_path / "empty.png")
    (tmp_path / "text.jpg").write_text("no image at all")
    with pytest.raises(ValueError, match=r"text\.jpg cannot be decoded"):
        read_image(tmp_path / "text.jpg")
    (tmp_path / "cut.png").write_bytes(cv2.imencode(".png", photo)[1].tobytes()[:30])
    with pytest.raises(ValueError, match=r"cut\.png cannot be decoded"):
        read_image(tmp_path / "cut.png")


def test_list_images(tmp_path, photo):
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    for name in ("b.JPG", "a.png", "c.txt", "below/d.png"):
        (folder / name).touch()
    odd = tmp_path / "no_suffix"
    odd.touch()
    assert list_images([folder]) == [folder / "a.png", folder / "b.JPG"]
    assert list_images([odd, folder / "b.JPG", folder]) == [odd, folder / "b.JPG", folder / "a.png"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list_images([folder, tmp_path / "nowhere"])
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="holds no image"):
        list_images([tmp_path / "void"])


def test_write_image_errors_leave_nothing(tmp_path, photo):
    with pytest.raises(ValueError, match=r"cannot write .*a\.xyz"):
        write_image(tmp_path / "a.xyz", photo)
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_image(tmp_path / "nowhere" / "a.png", photo)
    assert not list(tmp_path.iterdir())


def test_write_image_holds_sixteen_bits(tmp_path):
    mask = np.arange(600, dtype=np.uint16).reshape(20, 30)
    write_image(tmp_path / "m.png", mask)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "m.png"), cv2.IMREAD_UNCHANGED), mask)
