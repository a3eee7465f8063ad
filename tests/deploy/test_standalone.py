"""`deploy` copied alone: without the training side, and on Python 3.10 with numpy and OpenCV only."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINING_SIDE = ["torch", "mmengine", "mmcv", "mmdet", "mmseg", "vitdense", "onnx"]

ALL_MODULES = """
import importlib, pathlib, sys
sys.modules.update(dict.fromkeys({block!r}))
files = [p for p in pathlib.Path("deploy").rglob("*.py")]
names = [".".join(p.with_suffix("").parts).removesuffix(".__init__") for p in files]
assert len(names) > 10, names
for name in names:
    importlib.import_module(name)
assert not {{"openvino", "onnxruntime"}} & set(sys.modules), "a runtime is imported before it is asked for"
"""

PREDICT = """
import sys
from deploy.io import read_image
from deploy.predictor import Predictor
prediction = Predictor(sys.argv[1], runtime="onnxruntime", threads=1).predict(sys.argv[2])
assert prediction.class_map.shape == read_image(sys.argv[2]).shape[:2]
"""

DEVICE = """
import pathlib, sys
import numpy as np
from deploy.draw import add_legend, overlay, side_by_side
from deploy.files import write_json
from deploy.io import list_images, read_image, write_image
from deploy.manifest import load_manifest, save_manifest
from deploy.postprocess import segmentation_map
from deploy.preprocess import Preprocessor

assert sys.version_info[:2] == (3, 10)
bundle, out = map(pathlib.Path, sys.argv[1:3])
manifest = load_manifest(bundle)
save_manifest(out, manifest)
assert load_manifest(out) == manifest
manifest.verify(bundle, manifest.select("openvino"))
image = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)
write_image(out / "a.png", image)
assert (read_image(list_images([out])[0]) == image).all()
tensor, geometry = Preprocessor(manifest.input)(image)
assert tensor.shape == manifest.input.shape and tensor.dtype == np.float32
logits = np.zeros((5, 12, 16), np.float32)
logits[1, :, 8:] = 1
class_map = segmentation_map(logits, geometry, manifest.input.size)
assert class_map.shape == (61, 83) and set(np.unique(class_map)) == {0, 1}
painted = overlay(image, class_map, manifest.palette)
side_by_side([add_legend(painted, manifest.classes, manifest.palette, [0, 1]), painted], ["FP32", "INT8"])
"""


@pytest.fixture
def copied(tmp_path):
    """A folder with nothing but a copy of `deploy`."""
    folder = tmp_path / "device"
    shutil.copytree(ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _python(copied, code, *args, python=sys.executable):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [python, "-c", code, *map(str, args)],
        cwd=copied,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_imports_and_predicts_without_the_training_side(copied, bundle, photos):
    pytest.importorskip("onnxruntime")
    code = ALL_MODULES.format(block=TRAINING_SIDE) + PREDICT
    result = _python(copied, code, bundle, photos / "a.png")
    assert result.returncode == 0, result.stderr


def test_it_imports_nothing_but_numpy_opencv_and_the_standard_library():
    allowed = set(sys.stdlib_module_names) | {"numpy", "cv2", "deploy"}
    for path in (ROOT / "deploy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed, f"{path} imports {names}"


def test_the_package_itself_is_light(copied):
    result = _python(copied, "import sys, deploy; print(sorted({'numpy', 'cv2', 'json'} & set(sys.modules)))")
    assert result.stdout.strip() == "[]", result.stderr


def _python310():
    """A Python 3.10 that really runs, or None (a version manager's shim may be on the path and do nothing)."""
    candidates = sorted(Path.home().glob(".pyenv/versions/3.10*/bin/python"))
    candidates += [Path(found) for found in [shutil.which("python3.10")] if found]
    for python in candidates:
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
        if version.returncode == 0 and version.stdout.startswith("Python 3.10"):
            return python
    return None


@pytest.mark.slow
def test_python_310_with_numpy_and_opencv_alone(copied, bundle, tmp_path):
    python = _python310()
    if python is None:
        pytest.skip("there is no Python 3.10")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "numpy", "opencv-python-headless"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"numpy and OpenCV cannot be installed: {installed.stderr.strip()[-300:]}")
    out = tmp_path / "out"
    out.mkdir()
    result = _python(copied, ALL_MODULES.format(block=[]) + DEVICE, bundle, out, python=python)
    assert result.returncode == 0, result.stderr
    result = _python(
        copied,
        "from deploy.cli import run_cli; from deploy.predict import main; run_cli(main)",
        bundle,
        out / "a.png",
        "--out",
        tmp_path / "predicted",
        python=python,
    )
    assert result.returncode == 2 and "pip install openvino" in result.stderr
    assert not (tmp_path / "predicted").exists()
