"""What is missing from a log that lost acknowledged events, and how its sessions go on without it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.home import Home
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import CannotRunSafely
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import SessionEventsLost
from holdfast.facts.tool import ToolDispatched
from holdfast.hands.box.supervisor.journal import replay
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.sqlite.watermark import Mark, forget, heads_behind, watermark_path
from holdfast.log.worker_locks import is_live
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow

_OVER = ("done", "failed", "cancelled")


class Loss(msgspec.Struct, frozen=True):
    """What one session lost, as far as anything shows it.

    It has events up to `head`, 0 when all of it is gone; `known_seq` is the last lost event that something names, 0
    when nothing does. `calls` were started by its hands, and the log does not know them.
    """

    session_id: str
    head: int
    known_seq: int = 0
    calls: tuple[str, ...] = ()


class Losses(msgspec.Struct, frozen=True):
    """All of it. `sessions` are those that lost events, or may have; `strays` are calls of hands that the log does not
    know at all, by hands.
    """

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
    """What is missing, by the watermark, by what lies behind the damage, and by the journals of hands.

    It opens a copy: the database stays as it is.
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
    """Calls that journals say were started and that no event dispatches: by session, and those of unknown hands."""
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


def keep_aside(database: Path, home: Home) -> Path:
    """Copy the database, its write-ahead log and its watermark as they are now. Returns the folder."""
    folder = home.path / "recovered" / rfc3339(SystemClock().now_us())[:19].replace(":", "")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _copy(database, folder)
    return folder


def _copy(database: Path, folder: Path) -> None:
    """Copy the files of a database that no connection of this process has open."""
    for path in (database, database.with_name(f"{database.name}-wal"), watermark_path(database)):
        if path.exists():
            shutil.copyfile(path, folder / path.name)


async def record(runtime: Runtime, database: Path, losses: Losses, lost: list[Mark]) -> None:
    """Record the loss in each session that is still there, then take what is missing for lost. Safe to repeat."""
    key = f"events_lost:{lost[-1].hash.hex()}"
    for loss in losses.sessions:
        if loss.head and loss.session_id != HOME:
            fact = SessionEventsLost(content=_told(loss), known_seq=loss.known_seq, calls=loss.calls)
            await runtime.intake.post(loss.session_id, fact, key)
    forget(database, lost)


def _told(loss: Loss) -> str:
    """What the model is told."""
    calls = f" Calls that were started in them: {', '.join(loss.calls)}." if loss.calls else ""
    return (
        f"[The log of this session lost events that may have followed its event {loss.head}: turns, tool calls, their "
        f"results, and messages.{calls} What they did may have happened, in the workspace and elsewhere. Look at the "
        "actual state before you go on, and repeat nothing that must happen only once.]"
    )


def lines(losses: Losses, lost: list[Mark]) -> list[str]:
    """What is missing, in words for a terminal."""
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
