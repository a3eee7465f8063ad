"""How every command of the project ends: an exit code, and one line instead of a traceback for a user's mistake."""

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def _message(error: Exception) -> str:
    """What stands after ``error:``; the system's own errors say in words what they mean for the path."""
    if isinstance(error, FileExistsError | NotADirectoryError) and error.filename is not None:
        return f"{error.filename} is a file where a folder is needed, or lies under one; choose another path"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename} cannot be written: no permission; choose another path or change its rights"
    return str(error)


def run_cli(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and exit the process with its return value (None is 0).

    A `ValueError`, `ImportError` or `OSError` (a file that is not there, a folder that cannot be written) is the user's
    to mend: its message goes to stderr as ``error: …`` and the exit code is 2. A keyboard interrupt exits with 130.
    Anything else is a bug and keeps its traceback, and with VITDENSE_DEBUG=1 in the environment everything does.

    Args:
        main: The command. It parses its own arguments.

    Raises:
        SystemExit: Always.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name that the terminal cannot show must not end the run
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    try:
        code = main()
    except (ValueError, ImportError, OSError) as error:
        if os.environ.get("VITDENSE_DEBUG"):
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code or 0)
