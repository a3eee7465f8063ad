"""Which part may import which, and that importing the device side stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# tools -> {export, quant, evaluation} -> {openmmlab, checkpoints, engine, datasets} -> models -> torch, mmengine
LAYERS = {
    "models": 0,
    "checkpoints": 1,
    "openmmlab": 1,
    "datasets": 1,
    "analysis": 1,
    "engine": 2,
    "evaluation": 3,
    "export": 3,
    "quant": 4,
}
NEUTRAL = {"registry", "errors", "config", "reports"}


def imported(path):
    """Absolute names of everything that a file imports, relative imports resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", sources("vitdense"), ids=lambda path: str(path.relative_to(ROOT)))
def test_parts_import_downwards_only(path):
    part = path.relative_to(ROOT / "vitdense").parts[0].removesuffix(".py")
    for name in imported(path):
        assert not name.startswith("tools"), f"{path} imports the tools"
        target = name.split(".")[1] if name.startswith("vitdense.") else None
        if part in LAYERS and target in LAYERS:
            assert LAYERS[target] <= LAYERS[part], f"{part} imports {target}"
    if part == "models":
        roots = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)
        assert roots <= {"torch", "mmengine", "vitdense", "__future__"}, roots


@pytest.mark.parametrize("path", sources("deploy"), ids=lambda path: str(path.relative_to(ROOT)))
def test_device_side_never_imports_the_workstation_side(path):
    roots = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)
    assert roots <= {"numpy", "cv2", "openvino", "onnxruntime", "deploy"}, roots


def test_every_part_is_known():
    parts = {path.name.removesuffix(".py") for path in (ROOT / "vitdense").iterdir() if not path.name.startswith("_")}
    assert parts - {"py.typed"} <= set(LAYERS) | NEUTRAL


def test_importing_the_library_sets_no_default_scope_and_needs_no_mmdet():
    code = (
        "import sys; sys.modules.update(mmdet=None, mmseg=None, mmcv=None, nncf=None, openvino=None, onnx=None)\n"
        "import vitdense\n"
        "from vitdense.models import ViT, SimpleFeaturePyramid\n"
        "from mmengine.registry import DefaultScope\n"
        "assert DefaultScope.get_current_instance() is None\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_without_mmengine_the_library_says_how_to_install():
    code = "import sys; sys.modules['mmengine'] = None; import vitdense"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "pip install 'vitdense[train]'" in result.stderr


def test_files_stay_short():
    for path in [*sources("vitdense"), *sources("deploy"), *sources("tools")]:
        assert len(path.read_text().splitlines()) <= 400, path
