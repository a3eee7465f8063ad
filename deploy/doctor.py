"""Say what is missing on this device, and how to get it: ``python -m deploy.doctor``."""

from __future__ import annotations

import argparse
import importlib
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.cli import run_cli
from deploy.engines.build import trial_build
from deploy.engines.device import board_of
from deploy.engines.releases import INSTALL as TENSORRT_INSTALL
from deploy.engines.releases import import_tensorrt, release_of
from deploy.files import check_folder_of, write_json
from deploy.machine import system_memory
from deploy.runtimes.cuda import gpu_properties
from deploy.table import format_table

OK, NOTE, WARNING, MISSING = "ok", "note", "warning", "MISSING"
_GIB = 1 << 30
_FIRST_L4T = 36  # JetPack 6
_ENOUGH_FREE = 2 * _GIB  # to build an engine of ViT-S; it takes longer with less, or fails
_SMALL_BOARD = 8.5 * _GIB
_SWAP_OF_SMALL = 4 * _GIB
# One Relu, as ONNX: what a session of ONNX Runtime is tried with.
_TINY_ONNX = (
    b'\x08\x07:3\n\x0c\n\x01x\x12\x01y"\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01b\x0f\n\x01y'
    b"\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)


@dataclass(frozen=True)
class Finding:
    """What was found of one thing.

    Attributes:
        subject: Of what.
        status: 'ok', 'note', 'warning' or 'MISSING'.
        text: What there is.
        fix: What to do; '' where there is nothing to do.
    """

    subject: str
    status: str
    text: str
    fix: str = ""


def check_python() -> Finding:
    """Python itself."""
    return Finding("Python", OK, platform.python_version())  # an older one does not get here: see deploy/__init__.py


def check_opencv() -> Finding:
    """OpenCV, and whether it opens a Jetson's cameras."""
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError as error:
        fix = "apt install python3-opencv, or pip install opencv-python-headless"
        return Finding("OpenCV", MISSING, str(error), fix)
    if re.search(r"GStreamer:\s+YES", cv2.getBuildInformation()):
        return Finding("OpenCV", OK, f"{cv2.__version__} with GStreamer")
    fix = "csi: and usb: cameras need the system's: pip uninstall opencv-python-headless; apt install python3-opencv"
    return Finding("OpenCV", NOTE, f"{cv2.__version__} without GStreamer", fix)


def check_board(board: dict[str, Any]) -> Finding:
    """Board and JetPack, from `board_of`."""
    if not board["l4t"]:
        return Finding("Jetson", NOTE, f"this is none ({platform.machine()})")
    text = f"{board['board']}, Jetson Linux {board['l4t']}"
    if board["jetpack"]:
        text += f", JetPack {board['jetpack']}"
    if int(board["l4t"].partition(".")[0]) < _FIRST_L4T:
        return Finding("Jetson", MISSING, text, "JetPack 5 and older are not supported; flash JetPack 6 or newer")
    return Finding("Jetson", OK, text)


def fastest_mode(root: Path = Path("/")) -> str:
    """Return the command for the fastest power mode, whose number differs between boards: on a Nano 0 is 15 W."""
    path = root / "etc/nvpmodel.conf"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    modes = re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+?)\s*>", text)
    numbers = {name.upper(): number for number, name in modes}
    for name in ("MAXN_SUPER", "MAXN"):
        if name in numbers:
            return f"sudo nvpmodel -m {numbers[name]} ({name}; it may ask for a reboot)"
    return "sudo nvpmodel -m NUMBER, with that of the fastest mode in /etc/nvpmodel.conf"


def check_power(board: dict[str, Any], root: Path = Path("/")) -> Iterator[Finding]:
    """Power mode and clocks: what a measurement depends on most."""
    if not board["l4t"]:
        return
    mode = board["power_mode"]
    if not mode:
        yield Finding("Power mode", NOTE, "nvpmodel says nothing", "run it as a user who may: sudo nvpmodel -q")
    elif not mode.startswith("MAXN"):
        yield Finding("Power mode", WARNING, mode, f"for full speed: {fastest_mode(root)}")
    else:
        yield Finding("Power mode", OK, mode)
    clocks = board["clocks_mhz"]
    if {"now", "highest"} <= set(clocks):
        text = f"GPU at {clocks['now']:.0f} of {clocks['highest']:.0f} MHz"
        slow = clocks["now"] < 0.95 * clocks["highest"]
        fix = "they rise with load; for steady measurements: sudo jetson_clocks" if slow else ""
        yield Finding("Clocks", NOTE if slow else OK, text, fix)


def check_memory(root: Path = Path("/")) -> Iterator[Finding]:
    """Memory and swap: a build on a board of 8 GB needs both."""
    values = system_memory(root)
    if not {"MemTotal", "MemAvailable", "SwapTotal"} <= set(values):
        yield Finding("Memory", NOTE, "the system does not say")
        return
    total, free, swap = values["MemTotal"], values["MemAvailable"], values["SwapTotal"]
    text = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    few = free < _ENOUGH_FREE
    fix = "end the desktop before building: sudo systemctl isolate multi-user.target" if few else ""
    yield Finding("Memory", WARNING if few else OK, text, fix)
    if total < _SMALL_BOARD and swap < _SWAP_OF_SMALL:
        fix = "sudo fallocate -l 8G /swap && sudo chmod 600 /swap && sudo mkswap /swap && sudo swapon /swap"
        yield Finding("Swap", WARNING, f"{swap / _GIB:.1f} GiB", fix)
    else:
        yield Finding("Swap", OK, f"{swap / _GIB:.1f} GiB")


def check_cuda() -> Finding:
    """The GPU, through cuda-python."""
    try:
        gpu = gpu_properties()
    except (ImportError, ValueError) as error:
        fix = "" if isinstance(error, ImportError) else "is the NVIDIA driver running? On a Jetson: flash again"
        return Finding("CUDA", MISSING, str(error), fix)
    return Finding("CUDA", OK, f"{gpu['gpu']} ({gpu['compute_capability']}), driver for CUDA {gpu['driver']}")


def check_tensorrt() -> Finding:
    """TensorRT, and whether it knows this GPU."""
    try:
        trt = import_tensorrt()
    except ImportError as error:
        return Finding("TensorRT", MISSING, str(error).partition(":")[0], TENSORRT_INSTALL)
    try:
        release = release_of(trt)
    except ValueError as error:
        return Finding("TensorRT", MISSING, str(trt.__version__), str(error))
    if errors := trial_build(trt):
        reason = "; ".join(errors[-2:])
        fix = "TensorRT of pip is built for other GPUs than a Jetson's: pip uninstall tensorrt; apt install tensorrt"
        return Finding("TensorRT", MISSING, f"{trt.__version__} does not build here: {reason}", fix)
    typed = "strongly typed" if release.prefers_strong else "weakly typed for INT8"
    return Finding("TensorRT", OK, f"{trt.__version__} ({typed})")


def check_onnxruntime() -> Finding:
    """Which provider a session of ONNX Runtime really gets: it takes the CPU without a word where another fails."""
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError:
        return Finding("ONNX Runtime", NOTE, "not installed", "only needed for --runtime onnxruntime")
    listed = [name for name in ort.get_available_providers() if name != "AzureExecutionProvider"]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        real = ort.InferenceSession(_TINY_ONNX, options, providers=listed).get_providers()
    except Exception as error:  # its exception types derive from Exception alone and differ between versions
        return Finding("ONNX Runtime", WARNING, f"{ort.__version__}: {error}")
    lost = [name.removesuffix("ExecutionProvider") for name in listed if name not in real]
    text = f"{ort.__version__} on {', '.join(name.removesuffix('ExecutionProvider') for name in real)}"
    if lost:
        return Finding("ONNX Runtime", WARNING, text, f"it lists {', '.join(lost)} too, but does not get it")
    return Finding("ONNX Runtime", OK, text)


def check_openvino() -> Finding:
    """OpenVINO, for CPUs."""
    try:
        version = importlib.import_module("openvino").get_version()
    except (ImportError, AttributeError):
        return Finding("OpenVINO", NOTE, "not installed", "only needed for --runtime openvino")
    return Finding("OpenVINO", OK, str(version))


def examine(root: Path = Path("/"), board: Callable[[Path], dict[str, Any]] = board_of) -> list[Finding]:
    """Look at everything.

    Args:
        root: Of the file system.
        board: Describes it.
    """
    described = board(root)
    return [
        check_python(),
        check_opencv(),
        check_board(described),
        *check_power(described, root),
        *check_memory(root),
        check_cuda(),
        check_tensorrt(),
        check_onnxruntime(),
        check_openvino(),
    ]


def runtimes_that_work(findings: Sequence[Finding]) -> list[str]:
    """Name the runtimes of this project for which all is there."""
    status = {finding.subject: finding.status for finding in findings}
    works = ["tensorrt"] if status["CUDA"] == status["TensorRT"] == OK else []
    works += ["openvino"] if status["OpenVINO"] == OK else []
    return works + (["onnxruntime"] if status["ONNX Runtime"] in (OK, WARNING) else [])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 if a runtime works and nothing that it needs is missing, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m deploy.doctor", description="Say what is missing on this device.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what was found here too")
    args = parser.parse_args(argv)
    check_folder_of("--json", args.json)
    findings = examine()
    rows = [[finding.subject, finding.status, finding.text] for finding in findings]
    print(format_table(["what", "", "found"], rows))
    works = runtimes_that_work(findings)
    for finding in findings:
        if finding.fix:
            print(f"\n{finding.subject}: {finding.fix}")
    print(f"\nRuntimes that can be used here: {', '.join(works) or 'none'}")
    if args.json is not None:
        write_json(args.json, {"runtimes": works, "findings": [asdict(finding) for finding in findings]})
    basic = {"Python", "OpenCV", "Jetson"}
    broken = any(finding.status == MISSING and finding.subject in basic for finding in findings)
    return 1 if broken or not works else 0


if __name__ == "__main__":
    run_cli(main)
