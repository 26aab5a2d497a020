"""Show what a project's settings files would change, and ask the user whether to trust them."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from holdfast.app.call import Call
from holdfast.app.settings.config import find_project, project_changes, trust_store
from holdfast.app.settings.project import Change
from holdfast.app.settings.trust import Ignored, SettingsFile
from holdfast.clock import SystemClock, rfc3339
from holdfast.session.context.text import visible

VALUE_MAX = 4_000
"""Maximum number of characters of a value that are shown; `--json` has all of it."""


@dataclass(frozen=True)
class Found:
    """A settings file of a project, its changes, and the user's acceptance of its current content."""

    file: SettingsFile
    changes: Sequence[Change]
    accepted: bool

    def lines(self) -> list[str]:
        """The lines shown before the question."""
        state = "accepted" if self.accepted else "not accepted"
        lines = [f"{visible(str(self.file.path))}  (uid {self.file.uid}, sha256 {self.file.digest[:16]}, {state})"]
        if self.file.problem:
            return [*lines, f"  cannot count: {self.file.problem}"]
        for each in sorted(self.changes, key=lambda change: not change.danger):
            lines.append(f"  {visible(each.key)}: {_shown(each.old)} -> {_shown(each.new)}")
            lines.append(f"      {each.danger or 'harmless: counts without your word'}")
        lines += [f"  names {visible(name)} ({len(data)} bytes)" for name, data in sorted(self.file.named.items())]
        return lines

    def public(self) -> dict[str, Any]:
        """The same as data."""
        changes = [{"key": key, "old": _plain(old), "new": _plain(new), "danger": danger or None}
                   for key, old, new, danger in self.changes]  # fmt: skip
        file = self.file
        return {"path": str(file.path), "uid": file.uid, "digest": file.digest, "accepted": self.accepted,
                "problem": file.problem or None, "changes": changes, "files": sorted(file.named)}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _shown(value: Any) -> str:
    if value is None or value == "" or value == () or value == {}:
        return "none"
    text = visible(str(_plain(value))).replace("\n", "\\n")
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}… ({len(text)} characters; --json shows all)"


def project_found(folder: Path, flags: Mapping[str, Any]) -> list[Found]:
    """The holdfast.toml that a command in that folder would read, if one exists. Raises `UsageError`."""
    project = find_project(folder)
    if project is None:
        return []
    return [Found(project, project_changes(project, flags), trust_store().accepts(project))]


def accept(files: Sequence[Found]) -> None:
    """Accept these files with the content that was shown."""
    trust_store().accept([each.file for each in files], rfc3339(SystemClock().now_us()))


def can_ask(call: Call) -> bool:
    """True if the user can be asked on a terminal."""
    return not call.json and sys.stdin is not None and sys.stdin.isatty() and os.isatty(2)


async def confirmed(question: str) -> bool:
    """Ask on the terminal. Only `y` or `yes` agrees."""
    return (await typed_line(f"{question} [y/N] ")).lower() in ("y", "yes")


async def ask(call: Call, files: Sequence[Found]) -> bool:
    """Show the changes and ask the user. Only `y` or `yes` accepts."""
    for each in files:
        for line in each.lines():
            call.note(line)
    return await confirmed("Accept these settings until one of the files changes?")


async def typed_line(question: str) -> str:
    """Ask on the terminal and return the line that the user types, stripped; empty at the end of the input."""
    await anyio.lowlevel.checkpoint()  # from here on Ctrl-C ends the command
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # discard input from before the question
    print(question, end="", file=sys.stderr, flush=True)
    try:
        await anyio.wait_readable(sys.stdin.fileno())
    except anyio.get_cancelled_exc_class():  # Ctrl-C: the next line begins below the question
        print(file=sys.stderr, flush=True)
        raise
    return os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace").strip()


async def settled(
    call: Call, ignored: Sequence[Ignored], find: Callable[[], Sequence[Found]], *, asks: bool = True
) -> bool:
    """Ask about files whose keys are ignored, or report them without a terminal. True if they were accepted.

    `find` reads the files again, to show them.
    """
    paths = {each.path for each in ignored if not each.problem}
    if asks and paths and can_ask(call):
        files = [each for each in find() if str(each.file.path) in paths]
        if await ask(call, files):
            accept(files)
            return True
    for each in ignored:
        call.note(f"holdfast {call.args.verb}: {each.note()}")
    return False
