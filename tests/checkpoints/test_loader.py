"""The safe loader: what MMEngine writes is read, what would run code is refused, through every door."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner.checkpoint import CheckpointLoader

from vitdense.checkpoints import read_checkpoint, state_dict_of, use_safe_loader

ROOT = Path(__file__).resolve().parents[2]


class Hostile:
    """Unpickling it creates a file: proof that code ran."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return (open, (self.marker, "w"))


@pytest.fixture
def restore_schemes():
    schemes = dict(CheckpointLoader._schemes)
    yield
    CheckpointLoader._schemes = schemes


def mmengine_checkpoint():
    buffer = HistoryBuffer([1.0, 2.0], [1, 1])
    return {
        "meta": {"epoch": 1, "iter": 10, "seed": np.int64(3), "dataset_meta": {"classes": ("a", "b")}, "cfg": "x = 1"},
        "state_dict": {"weight": torch.arange(3.0)},
        "message_hub": {"log_scalars": {"loss": buffer}, "runtime_info": {"lr": np.float64(0.1)}},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
    }


def test_reads_what_mmengine_writes(tmp_path):
    path = tmp_path / "epoch_1.pth"
    torch.save(mmengine_checkpoint(), path)
    found = read_checkpoint(path)
    assert torch.equal(state_dict_of(found)["weight"], torch.arange(3.0))
    assert found["message_hub"]["log_scalars"]["loss"].mean() == 1.5
    assert found["message_hub"]["log_scalars"]["loss"].statistics("max") == 2.0
    assert found["meta"]["seed"] == 3


@pytest.mark.parametrize("protocol", [2, 4])
def test_refuses_code(tmp_path, protocol):
    path, marker = tmp_path / "evil.pth", tmp_path / "ran"
    torch.save({"state_dict": {"w": torch.zeros(1)}, "meta": Hostile(marker)}, path, pickle_protocol=protocol)
    with pytest.raises(ValueError, match="is refused.*could run code.*--trust-pickle"):
        read_checkpoint(path)
    assert not marker.exists()


def test_refuses_a_bare_pickle(tmp_path):
    path, marker = tmp_path / "evil.pth", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Hostile(marker), protocol=2))
    with pytest.raises(ValueError):
        read_checkpoint(path)
    assert not marker.exists()


def test_getattr_reaches_the_statistics_only(tmp_path):
    class Reach:
        def __reduce__(self):
            return (getattr, (HistoryBuffer, "register_statistics"))

    path = tmp_path / "reach.pth"
    torch.save({"a": Reach()}, path)
    with pytest.raises(ValueError, match="refused"):
        read_checkpoint(path)


def test_trust_is_an_explicit_choice(tmp_path):
    path, marker = tmp_path / "mine.pth", tmp_path / "ran"
    torch.save({"meta": Hostile(marker)}, path)
    assert "meta" in read_checkpoint(path, trust_pickle=True)
    assert marker.exists()


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("missing.pth", None, FileNotFoundError, "does not exist"),
        ("empty.pth", b"", ValueError, "damaged or incomplete"),
        ("cut.pth", b"PK\x03\x04 cut off", ValueError, "damaged or incomplete"),
        ("noise.safetensors", b"\xff" * 64, ValueError, "damaged or incomplete"),
        ("model.onnx", b"x", ValueError, "has the ending '.onnx'"),
    ],
)
def test_bad_files(tmp_path, name, content, error, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        read_checkpoint(path)


def test_checkpoint_without_tensors(tmp_path):
    with pytest.raises(ValueError, match="holds no tensors"):
        state_dict_of({"epoch": 3})


def test_under_mmengine_the_config_text_is_dropped_and_addresses_are_refused(tmp_path, restore_schemes):
    use_safe_loader()
    path = tmp_path / "epoch_1.pth"
    torch.save(mmengine_checkpoint(), path)
    loaded = CheckpointLoader.load_checkpoint(str(path), "cpu", logger=None)
    assert "cfg" not in loaded["meta"] and loaded["meta"]["epoch"] == 1
    for address in ("https://example.com/a.pth", "torchvision://resnet50", "openmmlab://x", "s3://bucket/a.pth"):
        with pytest.raises(ValueError, match="is an address"):
            CheckpointLoader.load_checkpoint(address, "cpu", logger=None)


CONFIG = """
custom_imports = dict(imports=['vitdense'], allow_failed_imports=False)
default_scope = 'mmseg'
model = dict(type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', size=(32, 32), mean=[0.]*3, std=[1.]*3),
    backbone=dict(type='vitdense.ViT', arch=dict(embed_dims=16, depth=1, num_heads=2)),
    decode_head=dict(type='FCNHead', in_channels=16, channels=16, num_convs=0, concat_input=False, num_classes=4,
        norm_cfg=dict(type='BN')), train_cfg=dict(), test_cfg=dict(mode='whole'))
loader = dict(batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(
    type='BaseSegDataset', data_root='DATA', data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
    metainfo=dict(classes=('a', 'b', 'c', 'd')), pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'),
    dict(type='Resize', scale=(64, 64), keep_ratio=False), dict(type='PackSegInputs')]))
train_dataloader, val_dataloader, test_dataloader = loader, loader, loader
val_evaluator = test_evaluator = dict(type='IoUMetric')
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)
val_cfg, test_cfg = dict(type='ValLoop'), dict(type='TestLoop')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3))
"""


def hostile_checkpoint(path, kind, marker):
    checkpoint = {"state_dict": {"w": torch.zeros(1)}, "meta": {"epoch": 1, "iter": 1}, "message_hub": {}}
    if kind == "pickle":
        checkpoint["meta"]["extra"] = Hostile(marker)
    else:  # MMEngine's resume executes this text
        checkpoint["meta"]["cfg"] = checkpoint["meta"]["config"] = f"open({str(marker)!r}, 'w')"
    torch.save(checkpoint, path)


@pytest.mark.parametrize("kind", ["pickle", "config"])
@pytest.mark.parametrize("door", ["resume", "load_from", "test", "export", "init", "convert"])
def test_a_hostile_file_runs_through_no_door(tmp_path, door, kind):
    from vitdense.datasets.generated import write_shapes

    write_shapes(tmp_path / "data", 1, 1, 64)
    marker, evil, config = tmp_path / "ran", tmp_path / "evil.pth", tmp_path / "config.py"
    hostile_checkpoint(evil, kind, marker)
    config.write_text(CONFIG.replace("DATA", str(tmp_path / "data")))
    init = f"model.backbone.init_cfg=dict(type='vitdense.Pretrained', checkpoint='{evil}')\n"
    if door == "init":
        config.write_text(config.read_text() + init.replace("model.backbone.init_cfg", "model['backbone']['init_cfg']"))
    commands = {
        "resume": ["tools/train.py", config, "--resume", evil, "--work-dir", tmp_path / "work"],
        "load_from": ["tools/train.py", config, "--cfg-options", f"load_from={evil}", "--work-dir", tmp_path / "work"],
        "init": ["tools/train.py", config, "--work-dir", tmp_path / "work"],
        "test": ["tools/test.py", config, evil, "--work-dir", tmp_path / "work"],
        "export": ["tools/export.py", config, evil, "--out", tmp_path / "bundle", "--shape", "64", "64"],
        "convert": ["tools/convert_checkpoint.py", evil, tmp_path / "out.pth", "--config", config],
    }
    line = [sys.executable, *map(str, commands[door])]
    result = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not marker.exists(), "the file ran code"
    if kind == "pickle":
        assert result.returncode == 2 and "is refused" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "bundle").exists() and not (tmp_path / "out.pth").exists()


class _Pointers:
    """A pickle that asks numpy for a type whose flags turn bytes into pointers."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return np.dtype, (self.kind, False, True)


@pytest.mark.parametrize("kind", ["O8", "V8", "O", "S4", "M8[s]"])
def test_arrays_of_anything_but_numbers_are_refused(tmp_path, kind):
    path = tmp_path / "model.pkl"
    with open(path, "wb") as stream:
        pickle.dump({"model": _Pointers(kind)}, stream)
    with pytest.raises(ValueError, match="is refused: .*not allowed"):
        read_checkpoint(path)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("dtype", ["f4", ">f4", "f2", "i8", "?", "u1"])
def test_arrays_of_numbers_come_through(tmp_path, dtype, protocol):
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    path = tmp_path / "model.pkl"
    with open(path, "wb") as stream:
        content = {"a": array, "n": np.float32(2.5), "zero_dim": np.array(3), "listed": [array]}
        pickle.dump({"model": content}, stream, protocol=protocol)
    found = read_checkpoint(path)["model"]
    assert np.array_equal(found["a"].numpy(), array) and found["n"] == 2.5
    assert found["zero_dim"].shape == () and np.array_equal(found["listed"][0].numpy(), array)


def test_a_type_alone_is_no_weight(tmp_path):
    path = tmp_path / "model.pkl"
    with open(path, "wb") as stream:
        pickle.dump({"model": np.dtype("f4")}, stream)
    with pytest.raises(ValueError, match="is refused: .*a DType is not allowed"):
        read_checkpoint(path)


def test_functions_that_a_pickle_may_call_cannot_be_changed(tmp_path):
    path = tmp_path / "model.pkl"
    # GLOBAL _codecs encode; None, {'__defaults__': ...} as a slot state; BUILD
    path.write_bytes(b"\x80\x02c_codecs\nencode\nN}X\x0c\x00\x00\x00__defaults__)s\x86b.")
    with pytest.raises(ValueError, match="is refused: .*not allowed"):
        read_checkpoint(path)


def test_something_else_under_the_name_of_a_weight():
    with pytest.raises(ValueError, match="holds a list under 'a.b', expected a tensor"):
        state_dict_of({"a": torch.ones(1), "a.b": [1.0]})
    with pytest.raises(ValueError, match="holds a ndarray under 'cls_token'"):
        state_dict_of({"a": torch.ones(1), "cls_token": np.ones(1)})


def test_a_home_that_does_not_exist():
    with pytest.raises(ValueError, match="~nosuch/x.pth"):
        read_checkpoint("~nosuch/x.pth")
