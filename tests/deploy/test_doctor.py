"""What the doctor says of recorded devices, and of the machine that runs the tests."""

import json
import sys
from types import SimpleNamespace

import pytest

from deploy import doctor
from deploy.doctor import MISSING, NOTE, OK, WARNING
from tests.deploy.conftest import ROOT
from tests.deploy.engines.stand_in import CUDA, ORIN, TensorRT

MEMINFO = "MemTotal:        {total} kB\nMemFree:   100 kB\nMemAvailable:    {free} kB\nSwapTotal:       {swap} kB\n"


def root_with(tmp_path, total, free, swap):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        MEMINFO.format(total=int(total * 2**20), free=int(free * 2**20), swap=int(swap * 2**20))
    )
    return tmp_path


@pytest.fixture
def gpu(monkeypatch):
    def use(trt=None, cuda=None):
        monkeypatch.setattr("deploy.runtimes.cuda.import_cuda", lambda: cuda or CUDA())
        monkeypatch.setitem(sys.modules, "tensorrt", trt)

    return use


def statuses(findings):
    return {finding.subject: finding.status for finding in findings}


def test_an_orin_nano_that_is_ready(gpu, tmp_path):
    gpu(TensorRT("10.3.0"))
    board = {**ORIN, "power_mode": "MAXN_SUPER", "clocks_mhz": {"now": 1020.0, "highest": 1020.0}}
    findings = doctor.examine(root_with(tmp_path, 7.4, 5, 8), lambda root: board)
    assert {statuses(findings)[name] for name in ("Jetson", "Power mode", "Clocks", "Memory", "Swap", "CUDA")} == {OK}
    trt = next(finding for finding in findings if finding.subject == "TensorRT")
    assert trt.status == OK and trt.text == "10.3.0 (weakly typed for INT8)"
    assert "tensorrt" in doctor.runtimes_that_work(findings)


def test_a_full_orin_nano_in_a_low_power_mode(gpu, tmp_path):
    gpu(TensorRT("10.3.0"))
    findings = doctor.examine(root_with(tmp_path, 7.4, 0.9, 0), lambda root: ORIN)
    found = {finding.subject: finding for finding in findings}
    assert found["Power mode"].status == WARNING and "number" in found["Power mode"].fix.lower()
    assert found["Clocks"].status == NOTE and found["Clocks"].text == "GPU at 306 of 625 MHz"
    assert found["Memory"].status == WARNING and found["Memory"].text == "0.9 of 7.4 GiB free"
    assert found["Swap"].status == WARNING and "swapon" in found["Swap"].fix


@pytest.mark.parametrize(
    ("modes", "command"),
    [
        (["0 NAME=15W", "1 NAME=25W", "2 NAME=MAXN_SUPER", "3 NAME=7W"], "sudo nvpmodel -m 2 (MAXN_SUPER;"),  # Nano
        (["0 NAME=MAXN", "1 NAME=15W", "2 NAME=30W"], "sudo nvpmodel -m 0 (MAXN;"),  # AGX
        (["0 NAME=10W"], "sudo nvpmodel -m NUMBER"),
    ],
)
def test_the_fastest_power_mode_has_the_boards_own_number(modes, command, gpu, tmp_path):
    gpu(TensorRT("10.3.0"))
    root = root_with(tmp_path, 7.4, 5, 8)
    (root / "etc").mkdir()
    lines = [f"< POWER_MODEL ID={mode} >\nCPU_ONLINE CORE_0 1" for mode in modes]
    (root / "etc/nvpmodel.conf").write_text("\n".join(lines))
    found = {finding.subject: finding for finding in doctor.examine(root, lambda root: ORIN)}
    assert command in found["Power mode"].fix


def test_jetpack_5_is_not_supported():
    found = doctor.check_board({**ORIN, "l4t": "35.6.0", "jetpack": "5.1.4"})
    assert found.status == MISSING and "JetPack 5" in found.fix and "JetPack 5.1.4" in found.text


def test_a_tensorrt_that_does_not_know_the_gpu(gpu):
    gpu(TensorRT("10.16.0.72", fails="target"))
    found = doctor.check_tensorrt()
    assert found.status == MISSING and "SM 87 is not supported" in found.text and "apt install tensorrt" in found.fix

    class Failing(TensorRT):
        def Builder(self, log):
            raise TypeError("pybind11::init(): factory function returned nullptr")

    gpu(Failing("10.16.0.72"))
    assert "returned nullptr" in doctor.check_tensorrt().text


def test_a_tensorrt_that_is_too_old_or_not_there(gpu):
    gpu(SimpleNamespace(__name__="tensorrt", __version__="8.5.2", Builder=None))
    assert doctor.check_tensorrt().status == MISSING and "8.6 or newer" in doctor.check_tensorrt().fix
    gpu(None)
    assert doctor.check_tensorrt().status == MISSING and "python3-libnvinfer" in doctor.check_tensorrt().fix


def test_a_provider_that_is_listed_and_not_got(monkeypatch):
    """JetPack 6 with PyPI's onnxruntime-gpu."""
    ort = pytest.importorskip("onnxruntime")
    assert doctor.check_onnxruntime().status == OK
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    found = doctor.check_onnxruntime()
    assert found.status == WARNING and found.text.endswith("on CPU") and "lists CUDA too" in found.fix


def test_opencv_with_and_without_gstreamer(monkeypatch):
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "    GStreamer:                   YES (1.20.3)")
    assert doctor.check_opencv().status == OK
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "    GStreamer:                   NO")
    assert doctor.check_opencv().status == NOTE and "python3-opencv" in doctor.check_opencv().fix


def test_nothing_works(monkeypatch, capsys):
    for name in ("tensorrt", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("deploy.runtimes.cuda.import_cuda", lambda: (_ for _ in ()).throw(ImportError("no cuda")))
    assert doctor.main([]) == 1
    assert "Runtimes that can be used here: none" in capsys.readouterr().out


def test_the_command_on_this_machine(run_module, tmp_path):
    pytest.importorskip("onnxruntime")
    result = run_module("deploy.doctor", "--json", tmp_path / "doctor.json")
    assert result.returncode == 0 and "Runtimes that can be used here:" in result.stdout, result.stderr
    record = json.loads((tmp_path / "doctor.json").read_text())
    assert "onnxruntime" in record["runtimes"]
    assert {"Python", "OpenCV", "CUDA", "TensorRT"} <= {item["subject"] for item in record["findings"]}
    result = run_module("deploy.doctor", "--json", tmp_path / "none/doctor.json")
    assert result.returncode == 2 and "create it first" in result.stderr


def test_python_of_jetpack_5_is_told_so(monkeypatch, capsys):
    source = (ROOT / "deploy/__init__.py").read_text()
    monkeypatch.setattr(sys, "version_info", (3, 8, 10))
    with pytest.raises(SystemExit, match="this is Python 3.8. JetPack 5 is not supported"):
        exec(compile(source, "deploy/__init__.py", "exec"), {})
