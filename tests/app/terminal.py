"""The command line as tests type it: in this process where nothing of the process matters, else in one of its own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.waiting import PATIENCE_S

HOLDFAST = (sys.executable, "-m", "holdfast")

PRICE = {"input_per_mtok": 3.0, "output_per_mtok": 15.0}
"""With it, `turn` costs 0.315 dollars."""


class Said(NamedTuple):
    """What a command returned and said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines: each of them an object, nothing else there."""
        values = [json.loads(line) for line in self.out.splitlines()]
        assert all(isinstance(value, dict) for value in values), self.out
        return values

    def refused(self, code: int, *pieces: str) -> Said:
        """Exactly one line, on standard error, that says these things; with that exit status."""
        assert self.code == code, self
        assert self.out == "", self.out
        (line,) = self.err.splitlines()
        assert line.startswith("holdfast"), line
        assert "should not happen" not in line, line
        missing = [piece for piece in pieces if piece not in line]
        assert not missing, f"{missing} not in: {line}"
        return self

    def went(self, code: int = 0) -> Said:
        """It came to that exit status, and nothing that should not happen did."""
        assert self.code == code, self
        # The output of a check may have one; it is quoted in an event then.
        assert not any(line.startswith("Traceback") for line in (*self.out.splitlines(), *self.err.splitlines())), self
        assert "should not happen" not in self.err, self.err
        return self


Type = Callable[..., Said]
"""`type("run", "a goal", …)` in this process."""


def in_scratch(words: Sequence[str | Path]) -> list[str]:
    """The words of a command; a `run` with a goal and no folder works in a new one, not where the tests run."""
    texts = [str(word) for word in words]
    named = {"--workspace", "--scratch", "--take-over"} & {text.partition("=")[0] for text in texts}
    begins = texts[:1] == ["run"] and ("--session-id" not in texts or not {"--model", "--agent"}.isdisjoint(texts))
    return [*texts, "--scratch"] if begins and not named else texts


def spawn(
    *words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, **options: Any
) -> subprocess.Popen[str]:
    """A command in a process of its own, with pipes."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    command = [*HOLDFAST, *in_scratch(words)]
    return subprocess.Popen(command, text=True, env={**os.environ, **(env or {})}, cwd=cwd, **options)


def ended(process: subprocess.Popen[str], timeout_s: float = PATIENCE_S) -> Said:
    """Wait for it."""
    out, err = process.communicate(timeout=timeout_s)
    return Said(process.returncode, out or "", err or "")


def typed(*words: str | Path, **options: Any) -> Said:
    """A command in a process of its own, from beginning to end."""
    return ended(spawn(*words, **options))


def bash(command: str, **fields: Any) -> dict[str, Any]:
    """A turn that calls bash, and costs something where there is a price."""
    return turn(tool_calls=[{"name": "bash", "input": {"command": command, **fields}}])


def turn(**fields: Any) -> dict[str, Any]:
    """A turn of a script with declared usage."""
    return {"usage": {"input_tokens": 100_000, "output_tokens": 1_000}, **fields}


def script(path: Path, *turns: Mapping[str, Any], price: Mapping[str, float] | None = None) -> str:
    """Write a model script; returns the name for --model."""
    path.write_text(json.dumps({"turns": turns, **({"price": price} if price else {})}))
    return f"scripted:{path}"


def rows(database: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What a query finds in the log's file."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query, values).fetchall()


def kept(home: Path) -> dict[str, object]:
    """Everything that lasts: each row of each table but the snapshots, and the workspaces."""
    database = home / "holdfast.db"
    tables: Sequence[tuple[str]] = rows(database, "select name from sqlite_master where type = 'table'")
    found: dict[str, object] = {
        name: sorted(rows(database, f"select * from {name}"), key=repr) for (name,) in tables if name != "snapshots"
    }
    folder = home / "workspaces"
    found["folders"] = sorted(str(path) for path in folder.rglob("*"))
    return found


def created(type: Type, key: str) -> dict[str, Any]:
    """The first event of a session."""
    event: dict[str, Any] = json.loads(type("export", key).out.splitlines()[0])
    return event
