"""Tests of deploy.cli."""

import pytest

from deploy.cli import run_cli


def _raise(error):
    raise error


@pytest.mark.parametrize(("value", "code"), [(None, 0), (0, 0), (1, 1), (2, 2)])
def test_the_return_value_is_the_exit_code(value, code, capsys):
    with pytest.raises(SystemExit) as caught:
        run_cli(lambda: value)
    assert caught.value.code == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", [ValueError, ImportError, FileNotFoundError, PermissionError])
def test_a_mistake_is_one_line(kind, capsys):
    with pytest.raises(SystemExit) as caught:
        run_cli(lambda: _raise(kind("what to do")))
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: what to do\n"


def test_an_interrupt_exits_with_130(capsys):
    with pytest.raises(SystemExit) as caught:
        run_cli(lambda: _raise(KeyboardInterrupt()))
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_cli(lambda: _raise(ZeroDivisionError()))
