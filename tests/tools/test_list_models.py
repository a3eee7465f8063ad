"""docs/models.md is what tools/list_models.py writes."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_in_docs_is_that_of_the_configs(run_tool, tmp_path):
    result = run_tool("tools/list_models.py", "--out", tmp_path / "models.md")
    assert result.returncode == 0, (result.stdout + result.stderr)[-2000:]
    expected = (tmp_path / "models.md").read_text()
    assert (ROOT / "docs/models.md").read_text() == expected, "run python tools/list_models.py --out docs/models.md"


def test_a_docstring_without_a_score_is_refused():
    sys.path.insert(0, str(ROOT / "tools"))
    from list_models import score_of

    assert score_of("A.\n\n    python x.py\n\nScore: AP 0.5 (test). Cost: much.") == "AP 0.5 (test)"
    with pytest.raises(ValueError, match="states no score: A detector."):
        score_of("A detector.\n\nIt detects.")
