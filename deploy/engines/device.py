"""What there is to say about the device that an engine is built on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.machine import system_memory


@dataclass(frozen=True)
class Device:
    """A GPU and the board that it sits on.

    Attributes:
        gpu: Its name, as CUDA gives it.
        compute_capability: For example 'sm87'.
        memory_bytes: All of it; on a Jetson it is shared with the CPU.
        free_bytes: Of it.
        driver: Highest CUDA version that the driver supports, as '12.6'.
        multiprocessors: Of the GPU: all Orin boards call theirs 'Orin' and sm87, with 4 to 16 of them.
        board: For example 'NVIDIA Jetson Orin Nano Developer Kit'; '' where it is no Jetson.
        l4t: Release of Jetson Linux, as '36.4.3'; ''.
        jetpack: Version of the package nvidia-jetpack, if that is installed; ''.
        power_mode: As nvpmodel names it; ''.
        clocks_mhz: GPU's present and highest clock, as far as the system says.
    """

    gpu: str
    compute_capability: str
    memory_bytes: int
    free_bytes: int
    driver: str = ""
    multiprocessors: int = 0
    board: str = ""
    l4t: str = ""
    jetpack: str = ""
    power_mode: str = ""
    clocks_mhz: Mapping[str, float] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The part of an engine's file name that tells devices apart."""
        name = self.board or self.gpu
        for word in ("NVIDIA", "Developer Kit", "Engineering Reference"):
            name = name.replace(word, "")
        return re.sub(r"[^a-z0-9]+", "-", f"{name} {self.compute_capability}".lower()).strip("-")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "clocks_mhz": dict(self.clocks_mhz)}


def _output_of(command: list[str]) -> str:
    """What a program prints, or '' if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\x00\n ")
    except OSError:
        return ""


def board_of(root: Path = Path("/"), output_of: Callable[[list[str]], str] = _output_of) -> dict[str, Any]:
    """Read what Jetson Linux says of its board; on other systems all is empty.

    Args:
        root: Of the file system.
        output_of: Runs a command.

    Returns:
        'board', 'l4t', 'jetpack', 'power_mode' and 'clocks_mhz' as in `Device`.
    """
    release = re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", _read(root / "etc/nv_tegra_release"))
    if release is None:
        return {"board": "", "l4t": "", "jetpack": "", "power_mode": "", "clocks_mhz": {}}
    package = re.search(r"^Version: *([\d.]+)", output_of(["dpkg", "-s", "nvidia-jetpack"]), re.MULTILINE)
    mode = re.search(r"NV Power Mode: *(\S+)", output_of(["nvpmodel", "-q"]))
    return {
        "board": _read(root / "proc/device-tree/model"),
        "l4t": f"{release.group(1)}.{release.group(2)}",
        "jetpack": package.group(1) if package else "",
        "power_mode": mode.group(1) if mode else "",
        "clocks_mhz": _gpu_clocks(root / "sys/class/devfreq"),
    }


def _gpu_clocks(devfreq: Path) -> dict[str, float]:
    """Clocks of the device that is a GPU: its folder is named 17000000.gpu or, before, 17000000.ga10b."""
    for folder in sorted(devfreq.glob("*")) if devfreq.is_dir() else ():
        if re.search(r"\.(gpu|ga10b|gv11b)|^gpu", folder.name):
            values = {name: _read(folder / f"{name}_freq") for name in ("cur", "max")}
            names = {"cur": "now", "max": "highest"}
            return {names[key]: round(int(value) / 1e6, 1) for key, value in values.items() if value.isdigit()}
    return {}


def read_device() -> Device:
    """Describe the GPU of this machine and its board.

    Raises:
        ImportError: cuda-python is not installed.
        ValueError: There is no GPU that CUDA can use.
    """
    from deploy.runtimes.cuda import gpu_properties

    properties, board = gpu_properties(), board_of()
    if board["l4t"]:  # CUDA does not count what the system would give back, such as cached files
        properties["free_bytes"] = max(properties["free_bytes"], system_memory().get("MemAvailable", 0))
    return Device(**properties, **board)
