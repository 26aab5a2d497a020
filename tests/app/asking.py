"""Sessions that ask people, for tests of the command line."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.app.terminal import Said, Type, rows, typed
from tests.support.child import await_end
from tests.support.waiting import PATIENCE_S

ASK = ("--ask", "bash", "--no-sandbox")


def item_of(said: Said | Type) -> str:
    """The id of the question that is asked; of the only one in the inbox when a way to type is given."""
    if isinstance(said, Said):
        words = [word.strip("`;") for word in said.err.replace("`", " ").split()]
        return next(word for word in words if word.startswith("itm_"))
    (found,) = [entry["item_id"] for entry in said("inbox", "--json").lines if entry["item_id"]]
    return str(found)


def asks(type: Type, model: str, *words: str | Path, key: str = "k") -> str:
    """Run a session until it asks; its item."""
    return item_of(type("run", "x", "--model", model, "--session-id", key, *ASK, *words).went(3))


def types(home: Path, kind: str = "") -> list[str]:
    """The types of all events, or those of one."""
    return [name for (name,) in rows(home / "holdfast.db", "select type from events order by rowid") if kind in name]


def comes_to(home: Path, kind: str, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
    """Wait until so many events of that type stand in the log."""
    end_s = time.monotonic() + timeout_s
    while types(home).count(kind) < count:
        assert time.monotonic() < end_s, types(home)
        time.sleep(0.01)


def rests(key: str = "k", code: int = 0) -> Said:
    """Stay with a session that goes on in the background until it stops."""
    return typed("attach", key).went(code)


def processes_of(home: Path) -> dict[int, str]:
    """Processes that name that home in their command or environment, or stand in it: pid → command."""
    found: dict[int, str] = {}
    needle = os.fsencode(home)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            inside = os.fsencode(os.readlink(entry / "cwd")).startswith(needle)
            if inside or needle in command or needle in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def let_go(home: Path) -> None:
    """Wait until no process of a home is left: not as long as hands stay that nobody gave back."""
    end_s = time.monotonic() + 60.0
    while left := processes_of(home):
        assert time.monotonic() < end_s, left
        await_end(min(left), end_s - time.monotonic())


def kill_all(home: Path) -> None:
    """What a power cut does to the processes of a home."""
    while left := processes_of(home):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def facts(type: Type, kind: str, key: str = "k") -> list[dict[str, Any]]:
    """The events of one type."""
    return type("logs", key, "--type", kind, "--json").lines
