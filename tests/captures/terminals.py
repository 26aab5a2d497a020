"""Commands in terminals: each runs in a fork of this process, so that Python and its modules are loaded once."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from holdfast.app.cli import main
from tests.app.screen import Session


class Typed(Session):
    """A command in a terminal of its own, typed in a folder."""

    def __init__(self, folder: Path, *words: str | Path, columns: int, rows: int = 30) -> None:
        self._folder = folder
        super().__init__(*words, columns=columns, rows=rows, command=())

    def become(self, argv: list[str], environment: dict[str, str]) -> None:
        """Run the command here."""
        os.environ.update(environment)
        for name in ("COLUMNS", "LINES"):  # the size is that of this terminal
            os.environ.pop(name, None)
        os.chdir(self._folder)
        sys.stdin = open(0, encoding="utf-8", closefd=False)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)
        code = 70
        try:
            code = main(argv)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)


def shown(folder: Path, *words: str | Path, columns: int) -> Typed:
    """A command from its beginning to its end."""
    terminal = Typed(folder, *words, columns=columns, rows=200)
    with terminal:
        terminal.ended()
    return terminal
