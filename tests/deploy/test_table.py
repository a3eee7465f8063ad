"""Tests of deploy.table."""

from deploy.table import format_table


def test_columns_are_aligned():
    text = format_table(["name", "ms"], [["a", "1.5"], ["longer name", "12.5"]], right={1})
    assert text.splitlines() == ["name           ms", "-----------  ----", "a             1.5", "longer name  12.5"]


def test_no_rows():
    assert format_table(["a", "b"], []).splitlines() == ["a  b", "-  -"]
