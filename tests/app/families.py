"""Trees of sessions as a user makes them: an agent file that may spawn, scripts, and what must hold in the end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from holdfast.session.home import HOME
from tests.app.terminal import ended, rows, script, spawn, typed
from tests.support.waiting import PATIENCE_S

LEAD = 'name = "lead"\ntools = ["bash", "search_log", "sleep", "spawn", "wait_for_children", "cancel_child"]\n'
"""An agent that may open others."""

CENT = {"usage": {"input_tokens": 10_000, "output_tokens": 0}}
"""A turn with it costs a cent."""

PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 0.0}

CENT_PICO = 10_000_000_000


def says(text: str = "", *calls: tuple[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A turn that costs a cent."""
    return {"text": text, "tool_calls": [{"name": name, "input": value} for name, value in calls], **CENT, **fields}


def opens(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A call that opens a child, which has no tool but `search_log` unless said."""
    return "spawn", {"goal": f"the part of {name}", "name": name, "tools": ["search_log"], **fields}


WAITS: tuple[str, dict[str, Any]] = ("wait_for_children", {})


def lead(folder: Path) -> Path:
    """The agent file."""
    file = folder / "lead.toml"
    file.write_text(LEAD)
    return file


def pair(folder: Path) -> str:
    """A model whose session opens two children and waits; a child says the same and, without those tools, goes on."""
    return script(
        folder / "pair.json",
        says("I split it.", opens("left"), opens("right")),
        says("", WAITS),
        says("All is in."),
        price=PRICE,
    )


def until(condition: Callable[[], object], process: Popen[str], timeout_s: float = PATIENCE_S) -> None:
    """Look again and again, as long as the process lives."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, ended(process)
        assert time.monotonic() < end, f"waited {timeout_s:g} s in vain"
        threading.Event().wait(0.01)


def stands(home: Path) -> Counter[str]:
    """How many sessions stand how."""
    database = home / "holdfast.db"
    if not database.exists():
        return Counter()
    found = [status for (status,) in rows(database, "select status from sessions where session_id != ?", HOME)]
    return Counter(found)


@contextmanager
def working(*words: str, home: Path) -> Iterator[Popen[str]]:
    """A worker that has begun to serve; ended with SIGTERM unless the test has ended it."""
    before = set((home / "serving").glob("*.lock"))  # killed ones leave theirs
    process = spawn("worker", *words)
    try:
        until(lambda: set((home / "serving").glob("*.lock")) - before, process)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            ended(process)


def whole(home: Path, children: int) -> list[str]:
    """What is wrong with the tree under `k` after all is done; nothing when all is well."""
    problems = []
    tops = [json.loads(line) for line in typed("ps", "--tree", "--all", "--json").went().out.splitlines()]
    top = next(row for row in tops if row["key"] == "k")
    below = [row for row in tops if row["parent"] == top["session_id"]]
    if len(below) != children or any(row["state"] != "done" for row in tops):
        problems.append(f"{len(below)} children, {[row['state'] for row in tops]}")
    events = [json.loads(line) for line in typed("export", "k").went().out.splitlines()]
    opened = Counter(event["child_id"] for event in events if event["type"] == "child.opened")
    finished = Counter(event["child_id"] for event in events if event["type"] == "child.finished")
    wanted = Counter(row["session_id"] for row in below)
    if opened != wanted or finished != wanted:
        problems.append(f"opened {opened}, finished {finished}, there {wanted}")
    if typed("verify").code != 0:
        problems.append("verify finds something")
    return problems + money(home)


def money(home: Path) -> list[str]:
    """Accounts over their cap, or with money still held."""
    query = "select account_id, cap_pico, spent_pico, reserved_pico from accounts"
    found = rows(home / "holdfast.db", query)
    return [
        f"{account}: {spent} + {held} of {cap}"
        for account, cap, spent, held in found
        if held or (cap is not None and spent > cap)
    ]
