"""Exported programs of PyTorch: written with a bundle, read back, and equal."""

import dataclasses
import json
import shutil
import zipfile

import numpy as np
import pytest
import torch

from deploy.files import sha256_of
from deploy.manifest import load_manifest, save_manifest
from deploy.predictor import Predictor
from vitdense.export.torch_half import HalfProgram
from vitdense.export.torch_program import trace_program


@pytest.fixture(scope="module")
def bundle(small_segmenter, run_tool, tmp_path_factory):
    """The small segmenter with both files, for two images at once and on no square."""
    out = tmp_path_factory.mktemp("program") / "bundle"
    options = ["--out", out, "--shape", "104", "96", "--num-images", "4", "--format", "pt2"]
    result = run_tool("tools/export.py", small_segmenter.config, small_segmenter.checkpoint, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


def test_a_segmenter_and_its_program_are_equal(bundle, small_segmenter):
    manifest = load_manifest(bundle)
    assert {name: spec.target for name, spec in manifest.files.items()} == {
        "model.onnx": "any",
        "model.pt2": "torch",
        "model.fp16.pt2": "torch",
    }
    parities = json.loads((bundle / "receipt.json").read_text())["parity"]["runtimes"]
    assert "torch" in {parity["runtime"] for parity in parities}
    image = next((small_segmenter.data / "images" / "val").iterdir())
    program = Predictor(bundle, runtime="torch", threads=1)
    onnx = Predictor(bundle, runtime="onnxruntime", threads=1)
    first, second = (predictor.predict(image).outputs["logits"] for predictor in (program, onnx))
    np.testing.assert_allclose(first, second, atol=1e-5 * np.abs(second).max(), rtol=0)
    kept = first.copy()
    program.predict(np.zeros((50, 40, 3), np.uint8))
    np.testing.assert_array_equal(first, kept)  # the next call does not write over it
    assert program.describe()["file"] == "model.pt2" and program.describe()["device"] == "cpu"


def dtypes_of(path):
    """Type of each float tensor that a program computes, by operator."""
    program = torch.export.load(str(path))
    values = [(str(node.target), node.meta.get("val")) for node in program.graph.nodes if node.op == "call_function"]
    return program, [(name, value.dtype) for name, value in values if isinstance(value, torch.Tensor)]


def test_the_half_program_computes_in_float16(bundle, small_segmenter):
    program, values = dtypes_of(bundle / "model.fp16.pt2")
    assert {tensor.dtype for tensor in program.state_dict.values() if tensor.is_floating_point()} == {torch.float16}
    products = [dtype for name, dtype in values if "conv" in name or "linear" in name or "matmul" in name]
    assert len(products) >= 9 and set(products) == {torch.float16}
    casts = [dtype for name, dtype in values if name.startswith("aten.to")]
    assert casts == [torch.float16, torch.float32], "in at the image, out at the logits, none between"
    image = next((small_segmenter.data / "images" / "val").iterdir())
    whole, half = (Predictor(bundle, runtime="torch", precision=kind, threads=1) for kind in ("fp32", "fp16"))
    assert half.filename == "model.fp16.pt2" and whole.filename == "model.pt2"
    expected, found = (predictor.predict(image).outputs["logits"] for predictor in (whole, half))
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert found.dtype == np.float32 and 0 < error < 5e-3


def test_a_weight_that_float16_cannot_hold_is_refused():
    layer = torch.nn.Conv2d(3, 4, 2)
    torch.nn.init.constant_(layer.bias, 1e5)
    with pytest.raises(ValueError, match=r"bias holds 1e\+05, more than float16 can \(65504\)"):
        HalfProgram(trace_program(layer.eval(), (4, 4)))


def test_it_names_no_path_of_the_machine(bundle):
    with zipfile.ZipFile(bundle / "model.pt2") as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    assert texts and not [text for text in texts if b"site-packages" in text or b"vitdense/models/vit.py" in text]


def test_damaged_and_foreign_programs(bundle, tmp_path, small_segmenter):
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    (folder / "model.pt2").write_bytes(b"no program")
    with pytest.raises(ValueError, match="is not the file the manifest describes"):
        Predictor(folder, runtime="torch")
    manifest = load_manifest(folder)

    def accept(manifest):
        spec = dataclasses.replace(manifest.files["model.pt2"], sha256=sha256_of(folder / "model.pt2"))
        save_manifest(folder, dataclasses.replace(manifest, files={**manifest.files, "model.pt2": spec}))

    accept(manifest)
    with pytest.raises(ValueError, match=r"cannot load .*model.pt2"):
        Predictor(folder, runtime="torch")
    other = torch.export.export(torch.nn.Conv2d(3, 4, 8, 8), (torch.zeros(1, 3, 96, 96),))
    torch.export.save(other, str(folder / "model.pt2"))
    accept(manifest)
    with pytest.raises(ValueError, match=r"input 'image' is float32 \[1, 3, 96, 96\], but the manifest says"):
        Predictor(folder, runtime="torch")


def test_a_size_that_depends_on_the_data_is_refused():
    class Counting(torch.nn.Module):
        def forward(self, image):
            return image[image > 0]

    with pytest.raises(ValueError, match="sizes that depend on the data"):
        trace_program(Counting(), (4, 4))
