"""The folder for Jetsons: what it names exists, and what it installs is there for aarch64."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.deploy.conftest import ROOT

JETSON = ROOT / "deploy/jetson"


def indented_commands():
    """Lines of the README's indented blocks that run a module of `deploy`."""
    text = (JETSON / "README.md").read_text()
    lines = [line.strip().partition("  #")[0] for line in text.splitlines() if line.startswith("    ")]
    return sorted({line for line in lines if re.match(r"python3 -m deploy\.", line)})


def unit():
    text = (JETSON / "vitdense-stream.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def test_there_are_commands():
    modules = {line.split()[2] for line in indented_commands()}
    assert modules == {f"deploy.{name}" for name in ("doctor", "build_engine", "bench", "predict", "stream")}


@pytest.mark.parametrize("line", [*indented_commands(), unit()["ExecStart"]])
def test_a_command_exists_with_its_options(line):
    words = shlex.split(line)
    result = subprocess.run([sys.executable, *words[1:3], "--help"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for option in (word for word in words if word.startswith("--")):
        assert option in result.stdout, option
    if "--runtime" in words:
        assert words[words.index("--runtime") + 1] in result.stdout


def test_the_service_ends_as_ctrl_c_does():
    assert unit()["KillSignal"] == "SIGINT" and unit()["Restart"] == "on-failure"


@pytest.mark.parametrize("name", ["Dockerfile.jetpack6", "Dockerfile.jetpack7"])
def test_what_a_dockerfile_copies_is_there(name):
    text = (JETSON / name).read_text()
    sources = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert len(sources) == 2 and all((ROOT / source).exists() for source in sources)
    assert re.search(r'^ENTRYPOINT \["python3", "-m"\]\nCMD \["deploy.doctor"\]$', text, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("jetpack", "python"), [("6", "3.10"), ("7", "3.12")])
def test_its_requirements_have_wheels_for_aarch64(jetpack, python, tmp_path):
    requirements = JETSON / f"requirements-jetpack{jetpack}.txt"
    platforms = [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_34", "_2_28", "_2_27", "_2_17", "2014")]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--target", tmp_path, "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", *platforms, "-r", requirements]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if re.search(r"NewConnectionError|Temporary failure in name resolution|timed out", result.stderr):
        pytest.skip("no package index can be reached")
    assert result.returncode == 0, result.stderr[-2000:]
    assert re.search(r"Would install .*cuda-python-1", result.stdout), result.stdout[-500:]
