"""A bundle with files for TensorRT, and devices to build it on."""

import dataclasses
import json
import sys

import pytest

from deploy.files import sha256_of
from deploy.manifest import FileSpec, load_manifest, save_manifest
from deploy.reference import Reference, load_reference, save_reference
from tests.deploy.engines.stand_in import CUDA, NO_BOARD, ORIN, TensorRT

HALF, STRONG, WEAK = (f"model.tensorrt-{kind}.onnx" for kind in ("fp16", "int8", "int8-weak"))


def layer_info(precision, field="Format/Datatype"):
    """What the inspector says of the tiny model's one layer, computed in a precision."""
    word = {"int8": "Int8", "fp16": "Half", "fp32": "Float"}[precision]
    layer = {
        "Name": "conv",
        "LayerType": "gemm",
        "Inputs": [{"Name": "x", field: word}],
        "Outputs": [{"Name": "y", field: "Float"}],
        "Metadata": "[ONNX Layer: q]\x1f[ONNX Layer: conv]",
    }
    return json.dumps({"Layers": [layer]})


@pytest.fixture
def rt_bundle(bundle, tiny_model):
    """The tiny bundle with its three files for TensorRT; that of float16 stands for itself in float32."""
    manifest, reference = load_manifest(bundle), load_reference(bundle)
    files, outputs, tolerances = dict(manifest.files), dict(reference.outputs), dict(reference.tolerances)
    for name, precision, target in (
        (HALF, "fp16", "tensorrt"),
        (STRONG, "int8", "tensorrt"),
        (WEAK, "int8", "tensorrt-weak"),
    ):
        tiny_model.save(bundle / name, int8=precision == "int8")
        layers = {precision: {"conv": 1000}}
        files[name] = FileSpec(sha256_of(bundle / name), (bundle / name).stat().st_size, precision, target, (), layers)
        like = "model.onnx" if precision == "fp16" else "model.openvino-int8.onnx"
        outputs[name], tolerances[name] = reference.outputs[like], 2e-2
    save_manifest(bundle, dataclasses.replace(manifest, files=files))
    save_reference(bundle, Reference(reference.inputs, outputs, tolerances))
    return bundle


@pytest.fixture
def install(monkeypatch):
    """Puts a release of TensorRT and a GPU where the commands look for them."""

    def use(trt, cuda=None, board=None):
        monkeypatch.setitem(sys.modules, "tensorrt", trt)
        cuda = cuda or CUDA()
        monkeypatch.setattr("deploy.runtimes.cuda.import_cuda", lambda: cuda)
        monkeypatch.setattr("deploy.runtimes.tensorrt.import_cuda", lambda: cuda)
        monkeypatch.setattr("deploy.engines.device.system_memory", lambda: {"MemAvailable": 6 << 30})
        monkeypatch.setattr("deploy.engines.device.board_of", lambda: board or NO_BOARD)
        return cuda

    return use


@pytest.fixture
def jetpack6(install):
    """JetPack 6 with TensorRT 10.3 on an Orin Nano, whose engines compute in INT8."""
    trt = TensorRT("10.3.0", info=layer_info("int8"))
    install(trt, board=ORIN)
    return trt
