"""Power as a Jetson's tegrastats prints it."""

import time

import pytest

from deploy.machine import PowerMonitor, peak_memory_mb, read_tegrastats

ORIN_NANO = (
    "01-08-2025 10:00:00 RAM {ram}/7620MB (lfb 2x4MB) SWAP 0/3810MB (cached 0MB) CPU [6%@729,0%@729,off,off,0%@729,"
    "1%@729] GR3D_FREQ 61% cpu@45.312C soc2@44.5C soc0@45.093C gpu@46.625C tj@{hot}C soc1@45.6C "
    "VDD_IN {power}mW/4940mW VDD_CPU_GPU_CV 533mW/533mW VDD_SOC 1337mW/1337mW\n"
)
AGX_ORIN = (
    "RAM 5120/30697MB (lfb 4x4MB) CPU [2%@1190] GR3D_FREQ 0% cpu@50C tboard@38.25C gpu@46C tj@50.3C "
    "VDD_GPU_SOC 3205mW/3205mW VDD_CPU_CV 400mW/400mW VIN_SYS_5V0 3327mW/3327mW\n"
)


def test_the_rail_that_feeds_the_module_is_the_power():
    lines = [ORIN_NANO.format(ram=2448, hot=46.6, power=4940), ORIN_NANO.format(ram=2500, hot=51.25, power=6940)]
    assert read_tegrastats(lines) == {"samples": 2, "power_w": 5.94, "temperature_c": 51.25, "ram_mb": 2500}


def test_rails_add_up_where_none_feeds_all():
    assert read_tegrastats([AGX_ORIN]) == {"samples": 1, "power_w": 6.93, "temperature_c": 50.3, "ram_mb": 5120}


@pytest.mark.parametrize("lines", [[], [""], ["tegrastats: command needs root"]])
def test_nothing_to_read(lines):
    assert read_tegrastats(lines) == {}


def test_without_power_the_rest_is_kept():
    assert read_tegrastats(["RAM 100/200MB gpu@40C"]) == {"samples": 1, "temperature_c": 40, "ram_mb": 100}


@pytest.fixture
def tegrastats(tmp_path, monkeypatch):
    """A program of that name which prints a line every hundredth of a second until it is ended."""
    script = tmp_path / "tegrastats"
    line = ORIN_NANO.format(ram=2448, hot=46.6, power=5000).strip()
    script.write_text(f'#!/bin/sh\n[ "$1" = --interval ] || exit 1\nwhile true; do echo "{line}"; sleep 0.01; done\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return script


def test_it_is_sampled_while_a_block_runs(tegrastats):
    with PowerMonitor(10) as monitor:
        assert monitor.running
        time.sleep(0.3)
    assert monitor.summary["power_w"] == 5 and monitor.summary["samples"] >= 2


def test_elsewhere_nothing_is_sampled(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with PowerMonitor() as monitor:
        assert not monitor.running
    assert monitor.summary == {}


def test_memory():
    assert 10 < peak_memory_mb() < 1e5
