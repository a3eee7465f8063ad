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


def test_a_file_where_a_folder_is_needed_is_said_in_words(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "under"):
        with pytest.raises(SystemExit) as ended:
            run_cli(lambda folder=folder: folder.mkdir())
        assert ended.value.code == 2
        message = capsys.readouterr().err
        assert str(folder) in message and "a file where a folder is needed" in message and "Errno" not in message


def test_debug_keeps_the_traceback(monkeypatch):
    monkeypatch.setenv("VITDENSE_DEBUG", "1")

    def mistake():
        raise ValueError("deep inside")

    with pytest.raises(ValueError, match="deep inside"):
        run_cli(mistake)
