"""`python -m deploy.build_engine` and the runtime of its engines, on stand-ins of several releases."""

import json

import numpy as np
import pytest

from deploy import bench, build_engine, predict
from deploy.engines.device import read_device
from deploy.engines.record import find_engine, load_record, verify_engine
from deploy.manifest import load_manifest, save_manifest
from deploy.predictor import Predictor
from deploy.reference import load_reference
from tests.deploy.engines.conftest import HALF, STRONG, WEAK, layer_info
from tests.deploy.engines.stand_in import API, CUDA, ORIN, TensorRT

NAME = "jetson-orin-nano-sm87-10.3.0-int8"


def files_in(bundle):
    return sorted(path.name for path in (bundle / "engines").glob("*"))


@pytest.fixture
def built(rt_bundle, jetpack6):
    assert build_engine.main([str(rt_bundle), "--precision", "int8"]) == 0
    return rt_bundle


def test_an_engine_its_record_and_its_timings(built, jetpack6):
    assert files_in(built) == [f"{NAME}.engine", f"{NAME}.json", "jetson-orin-nano-sm87-10.3.0.timings"]
    record = load_record(built / "engines" / f"{NAME}.json")
    assert (built / "engines" / record.engine).read_bytes() == (built / WEAK).read_bytes()
    assert record.model == WEAK and not record.strongly_typed and record.version == "10.3.0"
    assert record.device["power_mode"] == "15W" and record.device["l4t"] == "36.4.3"
    assert record.layers["found"] == {"int8": 1.0} and record.check["error"] < 1e-5
    # Half of what is free, and of that what the system would give back is a part.
    assert jetpack6.limits == {jetpack6.MemoryPoolType.WORKSPACE: 3 << 30}
    assert record.built["workspace_bytes"] == 3 << 30


@pytest.mark.parametrize("version", API)
def test_which_file_each_release_gets(version, rt_bundle, install, capsys):
    trt = TensorRT(version, info=layer_info("int8", "DataType" if version.startswith("11") else "Format/Datatype"))
    install(trt)
    assert build_engine.main([str(rt_bundle)]) == 0
    files = [path.rpartition("/")[2] for path in trt.parsed]
    expected = {"8.6.1": [WEAK], "10.0.1": [HALF, WEAK], "10.3.0": [HALF, WEAK]}.get(version, [HALF, STRONG])
    assert files == expected
    assert f"TensorRT {version}" in capsys.readouterr().out


def test_typing_as_asked(rt_bundle, jetpack6):
    build_engine.main([str(rt_bundle), "--precision", "int8", "--strongly-typed"])
    assert jetpack6.parsed[0].endswith(STRONG)
    with pytest.raises(ValueError, match="no fp16 file for weakly typed engines"):
        build_engine.main([str(rt_bundle), "--precision", "fp16", "--weakly-typed"])


def test_the_same_numbers_come_out(built, photo, jetpack6):
    engine = Predictor(built, runtime="tensorrt")
    assert engine.filename == WEAK
    before = CUDA.current.launches
    expected = Predictor(built, runtime="onnxruntime", precision="int8", target="tensorrt-weak")
    for image in (photo, photo[::-1].copy(), photo):
        np.testing.assert_array_equal(
            engine.predict(image).outputs["logits"], expected.predict(image).outputs["logits"]
        )
    assert CUDA.current.launches == before + 3
    first = engine.predict(photo).outputs["logits"]
    kept = first.copy()
    engine.predict(photo[::-1].copy())
    np.testing.assert_array_equal(first, kept)  # the next call does not write over it
    described = engine.describe()
    assert described["engine"] == f"{NAME}.engine" and described["device"] == "Orin (sm87)"
    assert described["precision"] == "int8"


def test_an_engine_that_cannot_be_captured_runs_all_the_same(built, photo, jetpack6):
    expected = Predictor(built, runtime="tensorrt").predict(photo).outputs["logits"]
    CUDA.current.failing = ("cudaStreamEndCapture",)
    engine = Predictor(built, runtime="tensorrt")
    for image in (photo[::-1].copy(), photo):
        found = engine.predict(image).outputs["logits"]
    np.testing.assert_array_equal(found, expected)
    assert engine.describe()["cuda_graph"] is False
    engine.runtime.close()


def test_memory_is_given_back(built, jetpack6):
    runtime = Predictor(built, runtime="tensorrt").runtime
    assert len(CUDA.current.memory) == 4
    runtime.close()
    assert not CUDA.current.memory


def test_the_device_commands_run_it(built, photos, tmp_path, capsys):
    build_engine.main([str(built), "--precision", "fp16"])
    options = ["--runtime", "tensorrt", "--iterations", "2", "--warmup", "0", "--markdown"]
    assert bench.main([str(built), *options, "--json", str(tmp_path / "bench.json")]) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    assert [result["precision"] for result in report["results"]] == ["fp16", "int8"]
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    assert row.startswith("| NVIDIA Jetson Orin Nano Developer Kit | 6.2 | tensorrt 10.3.0 | 15W | bundle | 48x64 |  |")
    assert bench.main([str(built), "--runtime", "tensorrt", "--check"]) == 0
    assert predict.main([str(built), str(photos), "--out", str(tmp_path / "out"), "--runtime", "tensorrt"]) == 0
    assert "2 of 2 images done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("precision", "message"),
    [("fp16", "0.0% of its multiplications run as the file says or narrower"), ("fp32", "it computes 100% fp32")],
)
def test_an_engine_in_another_precision_than_asked_is_refused(rt_bundle, jetpack6, precision, message):
    jetpack6.info = layer_info(precision)
    with pytest.raises(ValueError, match=message):
        build_engine.main([str(rt_bundle), "--precision", "int8"])
    assert not list((rt_bundle / "engines").glob("*.engine")) and not list((rt_bundle / "engines").glob("*.json"))
    jetpack6.info = layer_info("int8")  # narrower than asked is no loss of speed
    assert build_engine.main([str(rt_bundle), "--precision", "fp16"]) == 0


def test_float32_must_be_float32(rt_bundle, jetpack6):
    jetpack6.info = layer_info("fp16")
    with pytest.raises(ValueError, match="the fp32 engine computes in fewer bits at conv"):
        build_engine.main([str(rt_bundle), "--precision", "fp32"])
    jetpack6.info = layer_info("fp32")
    assert build_engine.main([str(rt_bundle), "--precision", "fp32"]) == 0


def test_outputs_that_differ_are_refused(rt_bundle, jetpack6):
    manifest, reference = load_manifest(rt_bundle), load_reference(rt_bundle)
    from deploy.reference import Reference, save_reference

    wrong = {name: (values[0] + 0.2, values[1]) for name, values in reference.outputs[WEAK].items()}
    save_reference(
        rt_bundle, Reference(reference.inputs, {**reference.outputs, WEAK: wrong}, dict(reference.tolerances))
    )
    with pytest.raises(ValueError, match="gives other results than the workstation: logits is off by"):
        build_engine.main([str(rt_bundle), "--precision", "int8"])
    assert files_in(rt_bundle) == ["jetson-orin-nano-sm87-10.3.0.timings"]
    assert manifest == load_manifest(rt_bundle)


def test_a_bundle_without_a_record_of_layers(rt_bundle, jetpack6):
    import dataclasses

    manifest = load_manifest(rt_bundle)
    files = {name: dataclasses.replace(spec, layers={}) for name, spec in manifest.files.items()}
    save_manifest(rt_bundle, dataclasses.replace(manifest, files=files))
    with pytest.raises(ValueError, match=f"does not say what {WEAK} asks for; run tools/quantize.py again"):
        build_engine.main([str(rt_bundle), "--precision", "int8"])


def test_an_engine_of_elsewhere_is_refused_with_the_reason(built, install, jetpack6):
    nano = r"built on NVIDIA Jetson Orin Nano Developer Kit \(sm87, 8 multiprocessors\)"
    agx = {**ORIN, "board": "NVIDIA Jetson AGX Orin Developer Kit"}
    for trt, cuda, board, reason in (
        (TensorRT("10.13.3.9"), None, ORIN, "built with TensorRT 10.3.0"),
        (jetpack6, CUDA("Thor", 11, 0), None, nano),
        (jetpack6, CUDA(multiprocessors=16), agx, nano),  # as all Orins it calls itself Orin, sm87
        (jetpack6, CUDA(multiprocessors=16), None, nano),  # in a container, which does not see the board's name
        (jetpack6, None, {**ORIN, "board": "NVIDIA Jetson Orin NX"}, nano),
    ):
        install(trt, cuda, board)
        with pytest.raises(ValueError, match=f"{NAME}.engine \\({reason}\\).*python -m deploy.build_engine"):
            Predictor(built, runtime="tensorrt")
    install(jetpack6)  # in a container on the board that it was built on
    assert Predictor(built, runtime="tensorrt").filename == WEAK
    with pytest.raises(ValueError, match=f"{NAME}.engine \\(another precision\\).*in fp16 build one.*--precision fp16"):
        Predictor(built, runtime="tensorrt", precision="fp16")
    with pytest.raises(ValueError, match="choose by precision"):
        Predictor(built, runtime="tensorrt", target="tensorrt")


def test_an_engine_of_another_bundle_or_changed_is_not_loaded(built, tiny_model, jetpack6):
    engine = built / "engines" / f"{NAME}.engine"
    engine.write_bytes(engine.read_bytes() + b"x")
    with pytest.raises(ValueError, match="is not the engine that its record describes"):
        Predictor(built, runtime="tensorrt")
    engine.unlink()
    with pytest.raises(FileNotFoundError, match="its record is there; build the engine again"):
        Predictor(built, runtime="tensorrt")
    manifest = load_manifest(built)
    import dataclasses

    spec = dataclasses.replace(manifest.files[WEAK], sha256="0" * 64)
    save_manifest(built, dataclasses.replace(manifest, files={**manifest.files, WEAK: spec}))
    with pytest.raises(ValueError, match=f"built from another {WEAK}"):
        Predictor(built, runtime="tensorrt")


def test_a_damaged_record_hides_no_other_engine(built, jetpack6):
    (built / "engines" / "old-sm87-8.6.1-int8.json").write_text("{")
    assert Predictor(built, runtime="tensorrt").filename == WEAK
    with pytest.raises(ValueError, match="old-sm87-8.6.1-int8.json .*is not an engine's record"):
        Predictor(built, runtime="tensorrt", precision="fp16")


def test_a_precision_that_fails_does_not_end_the_other(rt_bundle, jetpack6, capsys):
    manifest = load_manifest(rt_bundle)
    (rt_bundle / HALF).write_bytes(b"changed")
    with pytest.raises(ValueError, match=f"fp16: .*{HALF} is not the file the manifest describes"):
        build_engine.main([str(rt_bundle)])
    assert find_engine(rt_bundle, manifest, read_device(), "tensorrt", "10.3.0").precision == "int8"
    assert f"{NAME}.engine" in capsys.readouterr().out


def test_damaged_records(built, jetpack6):
    path = built / "engines" / f"{NAME}.json"
    good = json.loads(path.read_text())
    for values in ("{", "[]", json.dumps({**good, "extra": 1}), json.dumps({**good, "precision": "int4"})):
        path.write_text(values)
        with pytest.raises(ValueError, match="is not an engine's record"):
            Predictor(built, runtime="tensorrt")
    path.write_text(json.dumps({**good, "engine": "other.engine"}))
    with pytest.raises(ValueError, match="is the record of other.engine"):
        load_record(path)
    path.write_text(json.dumps({**good, "engine": "../../other.engine"}))
    with pytest.raises(ValueError, match="plain file name"):
        load_record(path)


def test_no_engine_and_no_memory(rt_bundle, install, jetpack6):
    with pytest.raises(ValueError, match="the bundle has no engine; for Orin"):
        Predictor(rt_bundle, runtime="tensorrt")
    build_engine.main([str(rt_bundle), "--precision", "int8"])
    cuda = install(jetpack6)
    cuda.failing = ("cudaMalloc",)
    with pytest.raises(ValueError, match=r"CUDA: out of memory \(cudaErrorMemoryAllocation\)"):
        Predictor(rt_bundle, runtime="tensorrt")


def test_a_damaged_engine_is_not_loaded_by_tensorrt(built, jetpack6):
    from deploy.files import sha256_of

    path = built / "engines" / f"{NAME}.json"
    engine = path.with_suffix(".engine")
    engine.write_bytes(b"damaged")
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": sha256_of(engine)}))
    with pytest.raises(ValueError, match="cannot load .*: magic tag does not match; build it again"):
        Predictor(built, runtime="tensorrt")


def test_the_narrowest_engine_is_taken(built, jetpack6):
    build_engine.main([str(built), "--precision", "fp16"])
    manifest, device = load_manifest(built), read_device()
    assert find_engine(built, manifest, device, "tensorrt", "10.3.0").precision == "int8"
    record = find_engine(built, manifest, device, "tensorrt", "10.3.0", "fp16")
    assert verify_engine(built, record).name.endswith("fp16.engine")


def test_the_command_lines_of_trtexec(rt_bundle, jetpack6, capsys):
    assert build_engine.main([str(rt_bundle), "--print-trtexec", "--workspace", "1024"]) == 0
    folder, half, int8 = capsys.readouterr().out.splitlines()
    assert folder == f"mkdir -p {rt_bundle / 'engines'}"
    assert f"--onnx={rt_bundle / HALF}" in half and "--stronglyTyped" in half and "--int8" not in half
    assert "--memPoolSize=workspace:1024" in half and "--noTF32" in half
    assert f"--saveEngine={rt_bundle / 'engines' / NAME}-trtexec.engine" in int8
    assert "--fp16 --int8 --precisionConstraints=obey '--layerPrecisions=float32/*:fp32'" in int8
    assert "--stronglyTyped" not in int8 and not (rt_bundle / "engines").exists()


def test_options_out_of_range(rt_bundle, jetpack6):
    with pytest.raises(ValueError, match="--workspace 9000 must lie in 1 to 8192 MiB"):
        build_engine.main([str(rt_bundle), "--workspace", "9000"])
    with pytest.raises(ValueError, match="--min-share 1.5"):
        build_engine.main([str(rt_bundle), "--min-share", "1.5"])


def test_a_bundle_without_files_for_tensorrt(bundle, jetpack6):
    with pytest.raises(ValueError, match=r"no int8 file for weakly typed engines.*--target tensorrt"):
        build_engine.main([str(bundle)])


def test_without_tensorrt_it_says_where_it_comes_from(rt_bundle, run_module):
    result = run_module("deploy.build_engine", rt_bundle, block=("tensorrt",))
    assert result.returncode == 2 and "python3-libnvinfer" in result.stderr and "Traceback" not in result.stderr
    result = run_module(
        "deploy.predict", rt_bundle, "x.png", "--out", "o", "--runtime", "tensorrt", block=("tensorrt",)
    )
    assert result.returncode == 2 and "Traceback" not in result.stderr
