"""Tests of deploy.files."""

import errno
import hashlib
import json
import os

import numpy as np
import pytest

from deploy.files import atomic_write, check_folder_of, sha256_of, write_json, write_npz


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_file(tmp_path):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=f"cannot write {tmp_path}/a.txt: No space left") as caught:
        with atomic_write(tmp_path / "a.txt"):
            full()
    assert caught.value.errno == errno.ENOSPC and not list(tmp_path.iterdir())


def test_the_file_of_an_option_needs_a_folder_and_is_none(tmp_path):
    check_folder_of("--json", None)
    check_folder_of("--json", tmp_path / "a.json")
    with pytest.raises(ValueError, match="--json .* is a folder; give the name of a file"):
        check_folder_of("--json", tmp_path)
    with pytest.raises(ValueError, match="--json .*: there is no folder .*nowhere"):
        check_folder_of("--json", tmp_path / "nowhere/a.json")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"), atomic_write(tmp_path / "nowhere" / "a"):
        pass


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": object()}])
def test_json_refuses_what_it_cannot_express(tmp_path, value):
    with pytest.raises(ValueError, match="not plain JSON"):
        write_json(tmp_path / "a.json", value)
    assert not list(tmp_path.iterdir())


def test_json_keeps_a_file_name_that_is_no_utf8(tmp_path):
    name = os.fsdecode(b"photo-\xff-\xc3\xa9.jpg")
    write_json(tmp_path / "a.json", {"image": name, "plain": "é"})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"image": name, "plain": "é"}
    assert "é" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_npz_takes_any_name(tmp_path):
    arrays = {"file": np.arange(3), "allow_pickle": np.zeros(2), "/head/out/0": np.ones((2, 3), np.float16)}
    write_npz(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert set(archive.files) == set(arrays)
        for name, array in arrays.items():
            assert archive[name].dtype == array.dtype
            np.testing.assert_array_equal(archive[name], array)


def test_sha256_of_a_file_larger_than_a_block(tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(data).hexdigest()
