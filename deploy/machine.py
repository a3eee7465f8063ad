"""The machine that a measurement was made on: its CPU and software, and a Jetson's power."""

from __future__ import annotations

import datetime
import platform
import re
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import cv2
import numpy as np

_TOTAL_RAILS = ("VDD_IN", "VIN")  # that feed a whole module; boards without one have several that add up


def cpu_model() -> str:
    """Return the CPU's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def system_memory(root: Path = Path("/")) -> dict[str, int]:
    """Return bytes by name from /proc/meminfo ("MemTotal", "MemAvailable", ...); empty on other systems."""
    path = root / "proc/meminfo"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return {name: int(number) * 1024 for name, number in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}


def now() -> str:
    """Return date and time in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def environment() -> dict[str, Any]:
    """What every record states about when and where it was made."""
    return {
        "date": now(),
        "cpu": cpu_model(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "opencv": cv2.__version__},
    }


def peak_memory_mb() -> float:
    """Return the most memory that this process has had so far; a Jetson's GPU memory is part of it only in part."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if platform.system() == "Linux" else 1024**2), 1)


def read_tegrastats(lines: Iterable[str]) -> dict[str, float]:
    """Summarise what `tegrastats` printed.

    Args:
        lines: Its lines, for example 'RAM 2448/7620MB ... gpu@46.6C ... VDD_IN 4940mW/4940mW ...'.

    Returns:
        'power_w', the mean of the rail that feeds the module or of the sum of all; 'temperature_c', the highest of any
        sensor; 'ram_mb', the most that was in use; 'samples'. Empty if no line could be read.
    """
    power, temperature, memory = [], [], []
    for line in lines:
        rails = {name: int(value) for name, value in re.findall(r"\b([A-Z][A-Z0-9_]*) (\d+)mW(?:/\d+mW)?", line)}
        if rails:
            whole = [rails[name] for name in _TOTAL_RAILS if name in rails]
            power.append((whole[0] if whole else sum(rails.values())) / 1000)
        temperature += [float(value) for value in re.findall(r"@([\d.]+)C\b", line)]
        memory += [int(value) for value in re.findall(r"\bRAM (\d+)/\d+MB", line)]
    if not power and not memory:
        return {}
    summary = {"samples": float(max(len(power), len(memory)))}
    if power:
        summary["power_w"] = round(float(np.mean(power)), 2)
    if temperature:
        summary["temperature_c"] = max(temperature)
    if memory:
        summary["ram_mb"] = float(max(memory))
    return summary


class PowerMonitor:
    """Samples a Jetson's power while a block runs; where there is no `tegrastats`, nothing.

    Args:
        interval_ms: Between samples.

    Attributes:
        summary: After the block, as of `read_tegrastats`.
    """

    def __init__(self, interval_ms: int = 100) -> None:
        self._interval = interval_ms
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self.summary: dict[str, float] = {}

    @property
    def running(self) -> bool:
        """Whether anything is sampled."""
        return self._process is not None

    def __enter__(self) -> PowerMonitor:
        if shutil.which("tegrastats"):
            command = ["tegrastats", "--interval", str(self._interval)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._lines.extend(self._process.stdout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=10)
            self._reader.join(timeout=10)
            self.summary = read_tegrastats(self._lines)
