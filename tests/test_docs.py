"""Commands that the documentation shows exist, with the options it shows."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]


def commands():
    """(page, command) of every line in a bash block."""
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield page.name, line.split("  #")[0].strip()


PYTHON = sorted({line for _, line in commands() if line.startswith("python ")})


def test_there_are_commands():
    assert len(PYTHON) >= 10


@pytest.mark.parametrize("line", PYTHON)
def test_command_exists_with_these_options(run_tool, line):
    words = shlex.split(line)[1:]
    module = words[:2] if words[0] == "-m" else words[:1]
    result = run_tool(*module, "--help")
    assert result.returncode == 0, result.stderr
    for option in re.findall(r"(?<=\s)--[a-z-]+", line):
        assert option in result.stdout, f"{option} is no option of {module}"
    for word in words:
        if word.startswith(("configs/", "weights/", "tools/")):
            assert (ROOT / word).is_file(), word


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for _, line in commands():
        if line.startswith("make "):
            assert re.search(rf"^{shlex.split(line)[1]}:", makefile, re.M), line


def test_links_and_pictures_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
