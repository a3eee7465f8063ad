"""A small bundle around a real ONNX graph (one strided convolution), for the tests of `deploy`."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.files import sha256_of
from deploy.io import write_image
from deploy.manifest import FileSpec, InputSpec, Manifest, OutputSpec, save_manifest
from deploy.reference import Reference, save_reference

ROOT = Path(__file__).resolve().parents[2]
HEIGHT, WIDTH, STRIDE, CLASSES = 48, 64, 4, 5
FP32, INT8 = "model.onnx", "model.openvino-int8.onnx"
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


@dataclasses.dataclass
class TinyModel:
    """The weights of the convolution, its formula in numpy, and the activation step of the INT8 file."""

    weight: np.ndarray
    bias: np.ndarray
    step: float = 3.0 / 127

    def __call__(self, tensor: np.ndarray) -> np.ndarray:
        """Convolve without overlap: (1, 3, H, W) -> (1, K, H / 4, W / 4), in float64."""
        height, width = tensor.shape[2] // STRIDE, tensor.shape[3] // STRIDE
        patches = tensor.astype(np.float64).reshape(1, 3, height, STRIDE, width, STRIDE)
        return np.einsum("bchpwq,kcpq->bkhw", patches, self.weight) + self.bias[None, :, None, None]

    def quantized(self, tensor: np.ndarray) -> np.ndarray:
        """The same with activations and weights rounded to int8."""
        scale = np.abs(self.weight).max(axis=(1, 2, 3), keepdims=True) / 127
        rounded = np.clip(np.rint(tensor.astype(np.float64) / self.step), -128, 127) * self.step
        return TinyModel(np.rint(self.weight / scale) * scale, self.bias)(rounded)

    def save(self, path: Path, *, int8: bool = False, dtype: str = "float32") -> None:
        """Write it as ONNX, the INT8 form with Q/DQ and per-channel weights."""
        onnx = pytest.importorskip("onnx")
        from onnx import helper, numpy_helper

        kind = {"float32": onnx.TensorProto.FLOAT, "uint8": onnx.TensorProto.UINT8}[dtype]
        data = {"b": self.bias.astype(np.float32)}
        nodes, source = [], "image"
        if dtype == "uint8":
            data |= {"mean": np.float32(MEAN).reshape(1, 3, 1, 1), "std": np.float32(STD).reshape(1, 3, 1, 1)}
            nodes = [
                helper.make_node("Cast", ["image"], ["float"], to=onnx.TensorProto.FLOAT),
                helper.make_node("Sub", ["float", "mean"], ["centred"]),
                helper.make_node("Div", ["centred", "std"], ["normal"]),
            ]
            source = "normal"
        if int8:
            scale = (np.abs(self.weight).max(axis=(1, 2, 3)) / 127).astype(np.float32)
            data |= {
                "wq": np.rint(self.weight / scale[:, None, None, None]).astype(np.int8),
                "ws": scale,
                "wz": np.zeros(len(scale), np.int8),
                "xs": np.float32(self.step),
                "xz": np.int8(0),
            }
            nodes += [
                helper.make_node("QuantizeLinear", [source, "xs", "xz"], ["xq"]),
                helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
                helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["w"], axis=0),
            ]
            source = "xd"
        else:
            data["w"] = self.weight.astype(np.float32)
        nodes.append(helper.make_node("Conv", [source, "w", "b"], ["logits"], strides=[STRIDE, STRIDE]))
        graph = helper.make_graph(
            nodes,
            "tiny",
            [helper.make_tensor_value_info("image", kind, [1, 3, HEIGHT, WIDTH])],
            [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, CLASSES, HEIGHT // 4, WIDTH // 4])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in data.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


@pytest.fixture(scope="session")
def tiny_model() -> TinyModel:
    rng = np.random.default_rng(7)
    return TinyModel(
        rng.normal(0, 0.05, (CLASSES, 3, STRIDE, STRIDE)).astype(np.float32),
        rng.normal(0, 0.05, CLASSES).astype(np.float32),
    )


def make_input(**changes: Any) -> InputSpec:
    """The input of the tiny model, with `changes`."""
    values: dict[str, Any] = {
        "name": "image",
        "shape": (1, 3, HEIGHT, WIDTH),
        "dtype": "float32",
        "color_order": "RGB",
        "mean": MEAN,
        "std": STD,
        "normalize_in_graph": False,
        "resize": "letterbox",
    }
    return InputSpec(**(values | changes))


def make_output(**changes: Any) -> OutputSpec:
    """The output of the tiny model, with `changes`."""
    values: dict[str, Any] = {
        "name": "logits",
        "shape": (1, CLASSES, HEIGHT // STRIDE, WIDTH // STRIDE),
        "dtype": "float32",
        "kind": "logits",
        "stride": STRIDE,
        "meaning": "class scores before softmax",
    }
    return OutputSpec(**(values | changes))


def make_manifest(**changes: Any) -> Manifest:
    """A segmentation manifest of the tiny model, with `changes`; its hashes are those of no file."""
    values: dict[str, Any] = {
        "task": "segmentation",
        "input": make_input(),
        "outputs": (make_output(),),
        "files": {FP32: FileSpec("0" * 64, 10, "fp32", "any"), INT8: FileSpec("1" * 64, 9, "int8", "openvino")},
        "classes": ("sky", "road", "car", "tree", "person"),
        "palette": ((70, 130, 180), (128, 64, 128), (0, 0, 142), (107, 142, 35), (220, 20, 60)),
        "thresholds": {"score": 0.35},
        "source": {"config": "tiny.py", "checkpoint_sha256": "2" * 64},
        "tools": {"onnx": "1.0"},
        "calibration": {INT8: {"images": ["3" * 64], "recipe": {"smooth_quant": 0.95}}},
    }
    return Manifest(**(values | changes))


@pytest.fixture
def new_input() -> Callable[..., InputSpec]:
    return make_input


@pytest.fixture
def new_output() -> Callable[..., OutputSpec]:
    return make_output


@pytest.fixture
def new_manifest() -> Callable[..., Manifest]:
    return make_manifest


@pytest.fixture
def photo() -> np.ndarray:
    """A smooth picture of an odd size, (61, 83, 3)."""
    rows, columns = np.mgrid[0:61, 0:83]
    planes = [127 + 120 * np.sin(rows / 9 + k) * np.cos(columns / (7 + 3 * k)) for k in range(3)]
    return np.stack(planes, axis=-1).astype(np.uint8)


@pytest.fixture
def bundle(tmp_path: Path, tiny_model: TinyModel, photo: np.ndarray) -> Path:
    """A whole bundle: FP32 and INT8 file, manifest, reference."""
    from deploy.preprocess import Preprocessor

    folder = tmp_path / "bundle"
    folder.mkdir()
    tiny_model.save(folder / FP32)
    tiny_model.save(folder / INT8, int8=True)
    files = {
        name: FileSpec(sha256_of(folder / name), (folder / name).stat().st_size, precision, target)
        for name, precision, target in ((FP32, "fp32", "any"), (INT8, "int8", "openvino"))
    }
    save_manifest(folder, make_manifest(files=files))
    tensors = tuple(Preprocessor(make_input())(image)[0] for image in (photo, photo[::-1, ::-1]))
    outputs = {
        FP32: {"logits": tuple(tiny_model(tensor).astype(np.float32) for tensor in tensors)},
        INT8: {"logits": tuple(tiny_model.quantized(tensor).astype(np.float32) for tensor in tensors)},
    }
    save_reference(folder, Reference(tensors, outputs, {FP32: 1e-4, INT8: 2e-2}))
    return folder


@pytest.fixture
def photos(tmp_path: Path, photo: np.ndarray) -> Path:
    """A folder with two images."""
    folder = tmp_path / "photos"
    folder.mkdir()
    write_image(folder / "a.png", photo)
    write_image(folder / "b.JPG", np.ascontiguousarray(photo.transpose(1, 0, 2)))
    return folder


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_module() -> Command:
    """Run `python -m MODULE ARGS…` from the repository's root, with modules made unimportable."""

    def run(module: str, *args: Any, block: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        code = (
            "import runpy, sys\n"
            f"sys.modules.update(dict.fromkeys({list(block)!r}))\n"
            f"sys.argv = {[module, *map(os.fspath, map(str, args))]!r}\n"
            f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        )
        return subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )

    return run
