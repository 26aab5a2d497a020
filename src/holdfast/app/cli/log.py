"""The verbs that read a log, and recovery after the loss of acknowledged events: logs, export, recover."""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.app import exits
from holdfast.app.call import SESSION, Call, position, positive
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of, next_step, short_name
from holdfast.app.home import Home, open_home
from holdfast.app.running.drive import watch
from holdfast.app.screen.briefs import moment
from holdfast.app.screen.progress import public
from holdfast.app.settings.config import database_path
from holdfast.app.settings.values import nearest, postgres_address
from holdfast.app.wrap import terminal_width
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock, local_time, rfc3339
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.codec import Event, genesis
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import SessionEventsLost
from holdfast.facts.tool import ToolDispatched
from holdfast.facts.union import FACT_TYPES
from holdfast.hands.box.supervisor.journal import replay
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.sqlite.watermark import Mark, forget, heads_behind, missing, watermark_path
from holdfast.log.worker_locks import is_live
from holdfast.model.base import StreamPart
from holdfast.service.event_lines import in_detail, in_full
from holdfast.service.events import PAGE, events, latest, tail
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow

LINES = 200
"""Number of events of all sessions that are printed by default."""

DAY_US = 86_400 * 1_000_000


def logs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `logs`."""
    parser.add_argument("session", metavar="ID", nargs="?", help=f"{SESSION} (default: all sessions)")
    parser.add_argument("-f", "--follow", action="store_true", help="Follow the log until the session stops running")
    parser.add_argument("--after", metavar="SEQ", type=position, default=0, help="Print only events after this one")
    parser.add_argument(
        "--since", metavar="WHEN", help="Print only events since then: 2h, or a time (all sessions: 1d)"
    )
    parser.add_argument(
        "-n", "--lines", metavar="N", type=positive, help=f"Print only the last N events (all sessions: {LINES})"
    )
    parser.add_argument("--type", metavar="T", nargs="+", default=[], help="Print only events of these types")
    parser.add_argument("--grep", metavar="REGEX", help="Print only events with a match in their line or full text")
    parser.add_argument("--full", action="store_true", help="Print whole messages, arguments, and results")
    parser.add_argument("--json", action="store_true", help="Print JSON lines, with times in UTC")


async def logs_run(call: Call) -> int:
    """Print the events."""
    args = call.args
    for name in args.type:
        if name not in FACT_TYPES:
            raise UsageError(
                f"--type {name}: no event has that type; {nearest(name, FACT_TYPES, 'docs/reference/events.md')}"
            )
    now_us = SystemClock().now_us()
    since_us = moment(args.since, now_us) if args.since else 0
    lines = _Lines(call, since_us)
    async with open_runtime(call.settings) as runtime:
        if args.session is None:
            if args.after:
                raise UsageError("--after counts events of one session; name it, or use --since, such as --since 2h")
            await _all(runtime, lines, since_us or now_us - DAY_US)
            return exits.DONE
        row = await runtime.store.find(args.session)
        if args.lines:
            last = await tail(runtime.store, row, lines.keeps, after=args.after, since_us=since_us, limit=args.lines)
            lines.on_events(last)
        if args.follow:
            await watch(runtime, row.session_id, lines, row.head if args.lines else args.after)
            row = await runtime.store.find(row.session_id)
            state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
            next_ = await next_step(runtime.store, row, state, call.typed)
            call.note(f"{name_of(row)} is {row.status}; no process is running it. {next_}")
            return exits.DONE
        seen = row.head if args.lines else args.after
        while page := await events(runtime.store, row.session_id, after=seen, types=args.type):
            lines.on_events(page)
            seen = page[-1].seq
        if args.after >= row.head:
            call.note(f"no event after {args.after}: {name_of(row)} has the events 1 to {row.head}")
    return exits.DONE


async def _all(runtime: Runtime, lines: _Lines, since_us: int) -> None:
    """Print the latest events of all sessions; with --follow, then all further ones until the command ends."""
    call, token = lines.call, 0
    seen: dict[str, int] = {}
    limit = call.args.lines or LINES
    while True:
        token = await runtime.store.changed(token)
        found = await latest(runtime.store, runtime.store, lines.keeps, since_us=since_us, seen=seen, limit=limit)
        for session_id in {event.session_id for event in found}:
            lines.names[session_id] = short_name(await runtime.store.find(session_id))
        lines.on_events(found)
        if not call.args.follow:
            break
        limit = PAGE
    if not found:
        call.note(f"no such event since {local_time(since_us)}; look further back with --since, such as --since 30d")


class _Lines:
    """An observer that prints every selected event; with the name of its session, if `names` has it."""

    def __init__(self, call: Call, since_us: int) -> None:
        self.call = call
        self.names: dict[str, str] = {}
        self._types = frozenset(call.args.type)
        self._since_us = since_us
        self._day = ""
        self._width = terminal_width(1)
        try:
            self._pattern = re.compile(call.args.grep) if call.args.grep else None
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(f"--grep {call.args.grep!r} is not a regular expression: {error}") from error

    def keeps(self, event: Event) -> bool:
        """Return True for a selected event."""
        if event.at_us < self._since_us or (self._types and event.type not in self._types):
            return False
        return self._pattern is None or bool(self._pattern.search(f"{event.type} {in_detail(event)}\n{in_full(event)}"))

    def on_events(self, events: list[Event]) -> None:
        """Print the events. A terminal shows the day once, and each line cut to its width."""
        for event in events:
            if not self.keeps(event):
                continue
            if self.call.json:
                self.call.emit(public(event))
                continue
            at = local_time(event.at_us)
            if self._width is not None:
                day, at = local_time(event.at_us, "%Y-%m-%d %Z"), local_time(event.at_us, "%H:%M:%S")
                if day != self._day:
                    self.call.say(day)
                self._day = day
            name = f"{self.names[event.session_id]:<8}  " if event.session_id in self.names else ""
            line = f"{at}  {name}{event.seq:>5}  {event.type:<20}  {in_detail(event)}".rstrip()
            self.call.say(line if not self._width or len(line) <= self._width else f"{line[: self._width - 1]}…")
            if self.call.args.full:
                for each in in_full(event).splitlines():
                    self.call.say(f"    | {each}")

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: they are not events."""


def export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--json", action="store_true", help="Print JSON lines (the default)")


async def export_run(call: Call) -> int:
    """Print every event with its hash, and verify the chain while reading."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        seen, prev = 0, genesis(row.session_id)
        while page := await runtime.store.read(row.session_id, after=seen, prev=prev, limit=PAGE):
            for event in page:
                call.emit(public(event))
            seen, prev = page[-1].seq, page[-1].hash
    return 0


_BUSY_TIMEOUT_S = 30.0


def recover_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recover`."""
    parser.add_argument("--yes", action="store_true", help="Continue without the lost events (default: only show them)")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def recover_run(call: Call) -> int:
    """Show the missing events; with the user's consent, record the loss in each session and reopen the home."""
    if postgres_address(call.settings.db):
        raise CannotRunSafely("the log of this home is in PostgreSQL, which has no watermark; nothing was changed")
    database, home = database_path(call.settings), open_home(Path(call.settings.home))
    lost = await anyio.to_thread.run_sync(missing, database, _BUSY_TIMEOUT_S)
    if not lost:
        if call.json:
            call.emit({"missing": [], "sessions": [], "strays": {}, "recovered": False, "kept": ""})
        call.say("no acknowledged event is missing; nothing was changed")
        return exits.DONE
    check_alone(home)
    losses = await find_losses(database, home, lost)
    if not call.json:
        for line in lines(losses, lost):
            call.say(line)
    kept = ""
    if call.args.yes:
        folder = home.path / "recovered" / rfc3339(SystemClock().now_us())[:19].replace(":", "")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await anyio.to_thread.run_sync(_copy, database, folder)
        kept = str(folder)
        async with open_runtime(call.settings, accept_loss=True) as runtime:
            check_alone(home, runtime.worker.worker_id)
            await record(runtime, database, losses, lost)
    if call.json:
        named = [{"session_id": mark.session_id, "seq": mark.seq, "at_us": mark.at_us} for mark in lost]
        call.emit({"missing": named, **msgspec.to_builtins(losses), "recovered": bool(kept), "kept": kept})
    if kept:
        call.note(f"the loss is recorded, and the home works again; the files as they were found are kept in {kept}")
        return exits.DONE
    call.note(
        "nothing was changed. Put the newest database and its -wal file back if you have them; to go on without what "
        f"is missing: `{call.typed('recover', '--yes')}`"
    )
    return exits.DAMAGED


_OVER = ("done", "failed", "cancelled")


class Loss(msgspec.Struct, frozen=True):
    """The events that one session lost, as far as known.

    The log has events up to `head`, 0 if all are lost. `known_seq` is the last lost event that any other data refers
    to, 0 if none. `calls` were started by the session's hands but are missing from the log.
    """

    session_id: str
    head: int
    known_seq: int = 0
    calls: tuple[str, ...] = ()


class Losses(msgspec.Struct, frozen=True):
    """All losses: `sessions` lost events or may have lost some; `strays` are calls of unknown hands, by hands id."""

    sessions: tuple[Loss, ...]
    strays: dict[str, tuple[str, ...]]


def check_alone(home: Home, me: str = "") -> None:
    """Raise `CannotRunSafely` while another process has the log open."""
    for lock in sorted(home.workers.glob("*.lock")):
        if lock.stem != me and is_live(home.workers, lock.stem):
            raise CannotRunSafely(
                f"the process {lock.stem} has this home open; nothing was changed: end it (`holdfast ps`, `holdfast "
                "worker`), then try again"
            )


async def find_losses(database: Path, home: Home, lost: list[Mark]) -> Losses:
    """Find lost events from the watermark, the data behind the damage, and the journals of hands.

    Works on a copy; the database does not change.
    """
    with tempfile.TemporaryDirectory(dir=home.path, prefix="recover-") as name:
        folder = Path(name)
        heads = await anyio.to_thread.run_sync(heads_behind, database, folder)
        await anyio.to_thread.run_sync(_copy, database, folder)
        opening = SqliteStore.open(folder / database.name, workers=home.workers, clock=SystemClock(), accept_loss=True)
        async with await opening as store:
            rows = {row.session_id: row for row in await store.sessions(home=True)}
            calls, strays = await _unknown_calls(store, home, rows)
    for mark in lost:
        heads[mark.session_id] = max(mark.seq, heads.get(mark.session_id, 0))
    found = []
    for session_id in sorted({*rows, *heads}):
        row = rows.get(session_id)
        head = row.head if row is not None else 0
        known = heads.get(session_id, 0)
        mine = calls.get(session_id, ())
        may_have = row is not None and row.status not in _OVER and session_id != HOME
        if known > head or mine or may_have:
            found.append(Loss(session_id, head, known if known > head else 0, mine))
    return Losses(tuple(found), strays)


async def _unknown_calls(
    store: SqliteStore, home: Home, rows: dict[str, SessionRow]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Calls that journals list as started but no event dispatches: by session, and those of unknown hands."""
    owners: dict[str, str] = {}
    dispatched: set[tuple[str, str]] = set()
    for session_id in rows:
        for event in await store.read(session_id):
            if isinstance(event.fact, HandsProvisioned):
                owners[event.fact.hands_id] = session_id
            elif isinstance(event.fact, ToolDispatched):
                dispatched.add((event.fact.hands_id, event.fact.call_id))
    calls: dict[str, tuple[str, ...]] = {}
    strays: dict[str, tuple[str, ...]] = {}
    for journal in sorted(home.hands.glob("*/journal")):
        hands_id = journal.parent.name
        unknown = tuple(call for call in replay(str(journal)).started if (hands_id, call) not in dispatched)
        if unknown and hands_id in owners:
            calls[owners[hands_id]] = (*calls.get(owners[hands_id], ()), *unknown)
        elif unknown:
            strays[hands_id] = unknown
    return calls, strays


def _copy(database: Path, folder: Path) -> None:
    """Copy the files of a database that no connection of this process has open."""
    for path in (database, database.with_name(f"{database.name}-wal"), watermark_path(database)):
        if path.exists():
            shutil.copyfile(path, folder / path.name)


async def record(runtime: Runtime, database: Path, losses: Losses, lost: list[Mark]) -> None:
    """Record the loss in each session that still exists, then accept the loss of the missing events. Safe to repeat."""
    key = f"events_lost:{lost[-1].hash.hex()}"
    for loss in losses.sessions:
        if loss.head and loss.session_id != HOME:
            calls = f" Calls that were started in them: {', '.join(loss.calls)}." if loss.calls else ""
            told = (
                f"[The log of this session lost events that may have followed its event {loss.head}: turns, tool "
                f"calls, their results, and messages.{calls} What they did may have happened, in the workspace and "
                "elsewhere. Look at the actual state before you go on, and repeat nothing that must happen only once.]"
            )
            fact = SessionEventsLost(content=told, known_seq=loss.known_seq, calls=loss.calls)
            await runtime.intake.post(loss.session_id, fact, key)
    forget(database, lost)


def lines(losses: Losses, lost: list[Mark]) -> list[str]:
    """The losses as lines for the terminal."""
    said = [
        f"missing: event {mark.seq} of session {mark.session_id}, acknowledged at {rfc3339(mark.at_us)[:19]}Z"
        for mark in lost
    ]
    for loss in losses.sessions:
        if not loss.head:
            said.append(f"session {loss.session_id} is gone: it had at least {loss.known_seq} events")
        elif loss.known_seq:
            said.append(f"session {loss.session_id} has events up to {loss.head} and had {loss.known_seq} or more")
        else:
            said.append(f"session {loss.session_id} has events up to {loss.head}; it may have had more")
        if loss.calls:
            said.append(f"  its sandbox started calls that the log does not know: {', '.join(loss.calls)}")
    for hands_id, calls in losses.strays.items():
        said.append(f"sandbox {hands_id}, which the log does not know, started calls: {', '.join(calls)}")
    said.append(
        "messages, approvals, budgets and emergency stops of that time may be gone too, and what was spent in it is "
        "not counted"
    )
    return said
