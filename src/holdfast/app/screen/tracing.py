"""The origin of a line of code: the mission whose main branch introduced it, and the evidence in its log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.errors import UsageError
from holdfast.facts.codec import Event
from holdfast.facts.mission import MissionOpened
from holdfast.kinds.mission.fold.state import mission_of, of_mission
from holdfast.kinds.mission.why import Link, Merge, Written, beginning, chain, handed_in, mapped, suspects
from holdfast.log.base import Which
from holdfast.repo.repository import Repository
from holdfast.session.context.text import harmless
from holdfast.session.fold import empty, fold
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

EXAMPLE = "holdfast why src/app.py:12"

MAX_BYTES = 16 << 20
"""Maximum size of a file that is read, in bytes."""


class Line(NamedTuple):
    """The queried line: the repository's folder, the file's path in it, the line number from 1."""

    top: Path
    path: str
    line: int


class Traced(msgspec.Struct, frozen=True):
    """The origin of a line, the nearest step first. Without `links`, `note` is the reason.

    `line` and `text` are those that the user asked about.
    """

    path: str
    line: int
    text: str
    mission_id: str = ""
    links: tuple[Link, ...] = ()
    note: str = ""


class _Seen(NamedTuple):
    """A mission with its log."""

    row: SessionRow
    state: State
    events: Sequence[Event]


def read_place(text: str, repo: str) -> Line:
    """Parse `FILE:LINE` as a place in the repository that contains `repo`. Raises `UsageError`."""
    name, _, number = text.rpartition(":")
    if not name or not number.isdecimal() or not 0 < int(number[:18]) < 10**9:
        raise UsageError(f"{text!r} names no line of a file; write it such as: {EXAMPLE}")
    folder = Path(repo).absolute()
    if not folder.is_dir():
        raise UsageError(f"--repo {repo}: there is no such folder; name the repository that {name} is in")
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    for base in (folder, top):
        path = Path(name) if Path(name).is_absolute() else base / name
        if path.is_relative_to(top) and ".." not in path.parts and (path.exists() or base is top):
            return Line(top, path.relative_to(top).as_posix(), int(number))
    raise UsageError(f"{name} is not in the repository {top}; name it with --repo DIR")


async def trace(runtime: Runtime, place: Line, mission: str) -> Traced:
    """Trace a line back. With a `mission` it is a line of the mission's main branch, else of the current file."""
    seen = await _missions(runtime, place, mission)
    repository = runtime.repository(str(place.top) if not mission else _repo(seen[0]))
    if mission:
        text = await _text(repository, of_mission(seen[0].state).main, place.path)
        if text is None:
            raise UsageError(f"there is no file {place.path} on the main line of {name_of(seen[0].row)}")
    else:
        text = _on_disk(place)
    lines = text.splitlines()
    if place.line > len(lines):
        raise UsageError(f"{place.path} has {len(lines)} lines, and no line {place.line}; {EXAMPLE}")
    shown = harmless(lines[place.line - 1])
    for each in seen:
        found = await _through(runtime, repository, each, place, text)
        if found:
            return Traced(place.path, place.line, shown, each.row.session_id, tuple(found))
    names = ", ".join(name_of(each.row) for each in seen[:3])
    note = f"No mission brought this line ({names} did not): it is older, or people wrote it; `git blame` says who."
    if not seen:
        note = f"No mission in this home worked on {place.top}: `git blame` says who wrote the line."
    elif mission:
        note = f"The line was there before {names} began: `git blame` says who wrote it."
    return Traced(place.path, place.line, shown, note=note)


def _repo(seen: _Seen) -> str:
    assert seen.state.created is not None
    assert seen.state.created.mission is not None
    return seen.state.created.mission.repo


async def _missions(runtime: Runtime, place: Line, mission: str) -> list[_Seen]:
    """The named mission, or all missions on this repository, newest first."""
    rows = [await runtime.store.find(mission)] if mission else await runtime.store.sessions(Which(top=True))
    found = []
    for row in rows:
        if row.parent or (not mission and row.name != "mission"):
            continue
        events = await runtime.store.read(row.session_id)
        state = fold(empty(row.session_id, runtime.kinds), events)
        seen = _Seen(row, state, events)
        if mission_of(state) is not None and (mission or place.top in (Path(_repo(seen)), *Path(_repo(seen)).parents)):
            found.append(seen)
    if mission and not found:
        raise UsageError(f"{mission} is no mission, so it has no main line; leave --mission out")
    return found


def _on_disk(place: Line) -> str:
    """The current content of the file, read as data."""
    file = place.top / place.path
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_BYTES:
            raise UsageError(
                f"there is no file {place.path} in {place.top}, or it is no plain file of up to 16 MB; for a file that "
                f"is on a mission's branch only, add --mission ID"
            )
        return file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


async def _text(repository: Repository, commit: str, path: str) -> str | None:
    """A file in a commit, None if the commit lacks it."""
    glob = "".join("?" if char in "*?[]" else char for char in path)
    data = (await repository.files(commit, (glob,))).get(path)
    return None if data is None else data.decode("utf-8", "replace")


async def _through(runtime: Runtime, repository: Repository, seen: _Seen, place: Line, text: str) -> list[Link]:
    """Trace a line back through one mission's main branch; empty if the mission did not introduce it."""
    mission = mission_of(seen.state)
    began = beginning(seen.events)
    if mission is None or began is None or not isinstance(began.fact, MissionOpened):
        return []
    newer = await _text(repository, mission.main, place.path)
    at = mapped(text, newer, place.line) if newer is not None else None
    for merge in suspects(seen.events, place.path):
        if at is None or newer is None:
            return []
        older = await _text(repository, merge.onto, place.path) or ""
        newer = await _text(repository, merge.commit, place.path) or ""
        before = mapped(newer, older, at)
        if before is None:
            line = newer.splitlines()[at - 1]
            hand_in = await author(repository, seen.events, merge, place, line)
            child_id = getattr(hand_in.fact, "child_id", "") if hand_in is not None else ""
            worker = await runtime.store.read(child_id) if child_id else []
            return chain(mission, seen.events, merge, hand_in, Written(place.path, line, worker))
        at, newer = before, older
    return []


async def author(repository: Repository, events: Sequence[Event], merge: Merge, place: Line, line: str) -> Event | None:
    """The hand-in of a merge that has the line: that of the only task that touched the file, or the first with it."""
    hand_ins = [handed_in(events, name, merge.event.seq) for name in merge.tasks]
    known = [event for event in hand_ins if event is not None]
    if len(known) < 2:
        return known[0] if known else None
    for event in known:
        text = await _text(repository, getattr(event.fact, "commit", ""), place.path)
        before = await _text(repository, merge.onto, place.path) or ""
        if text is not None and line in text.splitlines() and text.count(line) > before.count(line):
            return event
    return known[0]
