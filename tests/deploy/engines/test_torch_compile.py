"""`python -m deploy.build_engine --runtime torch-tensorrt`, on stand-ins with the options of each release."""

import dataclasses
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from deploy import bench, build_engine
from deploy.engines.record import load_record
from deploy.files import sha256_of
from deploy.manifest import FileSpec, load_manifest, save_manifest
from deploy.predictor import Predictor
from deploy.reference import Reference, load_reference, save_reference

torch = pytest.importorskip("torch")
API = json.loads(Path(__file__).with_name("torch_tensorrt_api.json").read_text())
NAME = "jetson-orin-nano-sm87-torch-tensorrt-{}-{}"


class TorchTensorRTModule(torch.nn.Module):
    """An engine, which computes as the program does."""

    def __init__(self, program, scale):
        super().__init__()
        self.program, self.scale = program, scale

    def forward(self, image):
        return self.program(image)[0] * self.scale


class TorchTensorRT(types.ModuleType):
    """A release of Torch-TensorRT, as far as its recorded interface goes."""

    def __init__(self, version, scale=1.0, in_torch=False):
        super().__init__("torch_tensorrt")
        self.__version__, self.scale, self.in_torch, self.asked = version, scale, in_torch, {}
        parameters = ", ".join(f"{name}=None" for name in API[version]["compile"] if name != "exported_program")
        source = f"def compile(exported_program, *, {parameters.replace('inputs=None', 'inputs', 1)}):\n"
        space = {"build": self._compile}
        exec(source + "    return build(exported_program, {k: v for k, v in locals().items()})", space)  # noqa: S102
        self.dynamo = types.SimpleNamespace(compile=space["compile"])

    def _compile(self, program, options):
        self.asked = {name: value for name, value in options.items() if value is not None}
        graph = torch.fx.Graph()
        result = graph.call_module("_run_on_acc_0", (graph.placeholder("image"),))
        if self.in_torch:
            result = graph.call_function(torch.ops.aten.relu.default, (result,))
        graph.output((result,))
        root = torch.nn.Module()
        root._run_on_acc_0 = TorchTensorRTModule(program.module(), self.scale)
        return torch.fx.GraphModule(root, graph)

    def save(self, module, file_path, **options):
        assert set(options) <= set(API[self.__version__]["save"])
        torch.export.save(torch.export.export(module, tuple(options["inputs"]), strict=False), file_path)


@pytest.fixture
def pt2_bundle(bundle, tiny_model):
    """The tiny bundle with its exported programs."""

    class Tiny(torch.nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.layer, self.dtype = torch.nn.Conv2d(3, len(tiny_model.bias), 4, 4, dtype=dtype), dtype
            weights = {"weight": torch.from_numpy(tiny_model.weight), "bias": torch.from_numpy(tiny_model.bias)}
            self.layer.load_state_dict(weights)

        def forward(self, image):
            return (self.layer(image.to(self.dtype)).float(),)

    manifest, reference = load_manifest(bundle), load_reference(bundle)
    files, outputs, tolerances = dict(manifest.files), dict(reference.outputs), dict(reference.tolerances)
    image = torch.zeros(manifest.input.shape)
    for name, precision, dtype in (("model.pt2", "fp32", torch.float32), ("model.fp16.pt2", "fp16", torch.float16)):
        with torch.no_grad():
            torch.export.save(torch.export.export(Tiny(dtype).eval(), (image,), strict=False), str(bundle / name))
        files[name] = FileSpec(sha256_of(bundle / name), (bundle / name).stat().st_size, precision, "torch")
        outputs[name], tolerances[name] = reference.outputs["model.onnx"], 1e-2
    save_manifest(bundle, dataclasses.replace(manifest, files=files))
    save_reference(bundle, Reference(reference.inputs, outputs, tolerances))
    return bundle


@pytest.fixture
def use(monkeypatch, jetpack6):
    """Puts a release of Torch-TensorRT and a GPU that PyTorch sees where the commands look for them."""

    def put(compiler):
        monkeypatch.setitem(sys.modules, "torch_tensorrt", compiler)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Orin")
        for module in ("deploy.engines.torch_compile", "deploy.runtimes.torch"):
            monkeypatch.setattr(f"{module}.GPU", "cpu")
        return compiler

    return put


OPTIONS = ["--runtime", "torch-tensorrt"]


@pytest.mark.parametrize("version", API)
def test_types_are_taken_as_written_in_every_release(version, pt2_bundle, use, photo, capsys):
    compiler = use(TorchTensorRT(version))
    assert build_engine.main([str(pt2_bundle), *OPTIONS, "--workspace", "512"]) == 0
    asked = compiler.asked
    # Asked for until 2.9, the default from 2.10 on, the only way and no option any more from 2.13 on.
    assert asked.get("use_explicit_typing") is (None if version >= "2.13" and len(version) > 5 else True)
    assert "enabled_precisions" not in asked and asked["workspace_size"] == 512 << 20 and asked["disable_tf32"]
    assert f"Torch-TensorRT {version}" in capsys.readouterr().out
    record = load_record(pt2_bundle / "engines" / f"{NAME.format(version, 'fp16')}.json")
    assert record.engine == f"{NAME.format(version, 'fp16')}.pt2" and record.model == "model.fp16.pt2"
    assert record.runtime == "torch-tensorrt" and record.version == version
    assert record.layers == {"engines": 1, "in_torch": {}} and record.check["error"] < 1e-2
    names = sorted(path.name for path in (pt2_bundle / "engines").iterdir())
    assert names == [record.engine.replace(".pt2", ".json"), record.engine]
    found = Predictor(pt2_bundle, runtime="torch-tensorrt").predict(photo).outputs["logits"]
    expected = Predictor(pt2_bundle, runtime="torch", precision="fp16").predict(photo).outputs["logits"]
    np.testing.assert_array_equal(found, expected)


def test_it_is_measured_beside_others(pt2_bundle, use, tmp_path):
    use(TorchTensorRT("2.8.0"))
    build_engine.main([str(pt2_bundle), *OPTIONS, "--precision", "fp16", "fp32"])
    options = [*OPTIONS, "--iterations", "2", "--warmup", "0", "--json", str(tmp_path / "bench.json")]
    assert bench.main([str(pt2_bundle), *options]) == 0
    results = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert [result["precision"] for result in results] == ["fp32", "fp16"]
    assert {(result["device"], result["version"]) for result in results} == {("Orin", "2.8.0")}
    assert bench.main([str(pt2_bundle), *OPTIONS, "--check"]) == 0
    with pytest.raises(ValueError, match="has .*built with Torch-TensorRT 2.8.0.* for Orin .* with TensorRT 10.3.0"):
        Predictor(pt2_bundle, runtime="tensorrt")
    use(TorchTensorRT("2.14.0"))
    with pytest.raises(ValueError, match="with Torch-TensorRT 2.14.0 .*build_engine .* --runtime torch-tensorrt"):
        Predictor(pt2_bundle, runtime="torch-tensorrt")


def test_operators_that_pytorch_runs_are_named(pt2_bundle, use, capsys):
    use(TorchTensorRT("2.8.0", in_torch=True))
    with pytest.raises(ValueError, match="gives other results than the workstation"):
        build_engine.main([str(pt2_bundle), *OPTIONS])  # a relu that the program has not
    assert "Not taken by TensorRT: 1 operators (1 x aten.relu.default)" in capsys.readouterr().out


def test_other_results_and_failures_leave_nothing(pt2_bundle, use):
    use(TorchTensorRT("2.8.0", scale=1.1))
    with pytest.raises(ValueError, match="logits is off by .*Nothing was written"):
        build_engine.main([str(pt2_bundle), *OPTIONS])
    assert not list((pt2_bundle / "engines").iterdir())
    compiler = use(TorchTensorRT("2.8.0"))
    compiler.dynamo.compile = lambda program, *, inputs, workspace_size, disable_tf32: 1 / 0
    with pytest.raises(ValueError, match="Torch-TensorRT 2.8.0 cannot compile model.fp16.pt2: division by zero"):
        build_engine.main([str(pt2_bundle), *OPTIONS])
    (pt2_bundle / "model.fp16.pt2").write_bytes(b"another")
    with pytest.raises(ValueError, match="is not the file the manifest describes"):
        build_engine.main([str(pt2_bundle), *OPTIONS])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weakly-typed"], "--strongly-typed or --weakly-typed is for --runtime tensorrt"),
        (["--min-share", "0.5"], "--min-share is for --runtime tensorrt"),
        (["--print-trtexec"], "--print-trtexec is for --runtime tensorrt"),
        (["--precision", "int8"], "gets no int8 here; take --runtime tensorrt"),
    ],
)
def test_what_it_does_not_do(options, message, pt2_bundle, use):
    use(TorchTensorRT("2.8.0"))
    with pytest.raises(ValueError, match=message):
        build_engine.main([str(pt2_bundle), *OPTIONS, *options])


def test_a_bundle_without_programs(bundle, use):
    use(TorchTensorRT("2.8.0"))
    with pytest.raises(ValueError, match=r"no file with precision 'fp16' for torch.*tools/export.py with --format pt2"):
        build_engine.main([str(bundle), *OPTIONS])


def test_what_is_missing_is_named_first(pt2_bundle, jetpack6, monkeypatch):
    with pytest.raises(ValueError, match="sees no GPU .*it is the CPU's build.* take 2.8 of both"):
        build_engine.main([str(pt2_bundle), *OPTIONS])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "torch_tensorrt", None)
    with pytest.raises(ImportError, match="Torch-TensorRT is not there, or does not fit PyTorch"):
        build_engine.main([str(pt2_bundle), *OPTIONS])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="PyTorch is not installed"):
        build_engine.main([str(pt2_bundle), *OPTIONS])
