"""Forks of sessions (S22).

The folder is made first, and the session is opened last, in one transaction. A crash in between leaves a folder without
a session and a mark beside it; the next fork in this home removes both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.brain.points import Point
from holdfast.errors import CannotRunSafely, HoldfastError, Refused, UnknownSession, UsageError
from holdfast.facts.session import SessionForked, Workspace
from holdfast.hands.user import choose_user, make_ready
from holdfast.ids import new_session_id
from holdfast.repo.base import Owner, Shelf
from holdfast.service.posting import Poster
from holdfast.session.rows import SessionRow

MARK = ".forking-"
"""Prefix of the mark of an unfinished folder; the new session's id follows."""


class Ground(msgspec.Struct, frozen=True):
    """The folder of the forks' workspaces, and the identity of this process.

    `lives` asks the kernel whether the process of a worker lives.
    """

    workspaces: Path
    worker_id: str
    lives: Callable[[str], bool]


class Wish(msgspec.Struct, frozen=True):
    """The options of a fork: a key, and a money cap in pico-dollars, None for no cap."""

    key: str
    budget_pico: int | None
    program: str


class Forked(msgspec.Struct, frozen=True):
    """The fork's row and its first event. `duplicate`: it existed before."""

    row: SessionRow
    fact: SessionForked
    duplicate: bool


async def existing(poster: Poster, origin: SessionRow, seq: int, key: str) -> Forked | None:
    """Return the fork with that key. Raises `UsageError` for the key of another session, or of another point."""
    try:
        row = await poster.index.find(key)
    except UnknownSession:
        return None
    if key not in (row.key, row.session_id):
        return None
    if (row.origin, row.origin_seq) != (origin.session_id, seq):
        raise UsageError(
            f"the key {key!r} already names session {row.session_id}, which is not a fork of {origin.session_id} at "
            f"{seq}; nothing was written: use another key"
        )
    return Forked(row, await _first(poster, row), True)


async def fork(poster: Poster, shelf: Shelf, ground: Ground, origin: SessionRow, point: Point, wish: Wish) -> Forked:
    """Open a fork at that point. It stays paused until it is woken or receives a message.

    Raises `UsageError` or `CannotRunSafely` without a snapshot of that point; then nothing was written.
    """
    await sweep(poster, shelf, ground)
    _check_kept(origin, point)
    created = point.state.created
    if created is None:
        raise CannotRunSafely(
            f"the first event of session {origin.session_id} was erased, and a fork needs it; nothing was written"
        )
    if created.mission is not None or created.items is not None:
        what, shared = ("mission", "main branch") if created.mission is not None else ("run over a list", "output")
        raise UsageError(
            f"session {origin.session_id} is a {what}, and two cannot share its {shared}; nothing was written. Start "
            "another one, or fork one of the sessions below it"
        )
    fork_id = new_session_id(poster.clock.now_us(), poster.entropy)
    near = created.workspace
    path = ground.workspaces / fork_id
    workspace = Workspace(str(path), True, near.user, near.isolation, near.read_only, near.env)
    mark = ground.workspaces / f"{MARK}{fork_id}"
    mark.write_text(ground.worker_id)
    try:
        snapshot = await _copy(shelf, fork_id, workspace, point)
    except (HoldfastError, OSError):
        await _remove(shelf, ground, fork_id)
        raise
    fact = SessionForked(
        origin=origin.session_id,
        origin_seq=point.state.seq,
        origin_hash=point.state.hash.hex(),
        goal=created.goal,
        model=created.agent.model,
        workspace=workspace,
        accounts=(fork_id, *origin.accounts[1:]),
        budget_pico=wish.budget_pico,
        key=wish.key,
        snapshot=snapshot,
        program=wish.program,
        owner=point.state.owner,
        name=created.agent.name,
        snapshot_seq=point.kept_seq,
        unkept=tuple(call.call_id for call in point.unkept),
    )
    try:
        receipt = await poster.log.post(poster.drafted(fork_id, fact, "created"), create=True)
    except (Refused, UsageError):  # nothing was written; after any other error only the log can tell
        await _remove(shelf, ground, fork_id)
        raise
    if receipt.session_id != fork_id:  # another process was faster with the same key
        await _remove(shelf, ground, fork_id)
        other = await existing(poster, origin, point.state.seq, wish.key)
        assert other is not None
        return other
    mark.unlink(missing_ok=True)
    return Forked(await poster.index.find(fork_id), fact, False)


async def sweep(poster: Poster, shelf: Shelf, ground: Ground) -> int:
    """Remove folders that dead processes left of forks that were never opened. Return their number."""
    removed = 0
    for mark in sorted(ground.workspaces.glob(f"{MARK}ses_*")):
        with contextlib.suppress(FileNotFoundError):  # another sweeper was faster
            if ground.lives(mark.read_text()):
                continue
            fork_id = mark.name.removeprefix(MARK)
            try:
                is_open = (await poster.index.find(fork_id)).session_id == fork_id
            except UnknownSession:
                is_open = False
            if is_open:
                mark.unlink()
            else:
                await _remove(shelf, ground, fork_id)
                removed += 1
    return removed


async def _first(poster: Poster, row: SessionRow) -> SessionForked:
    (first,) = await poster.log.read(row.session_id, after=row.origin_seq, limit=1)
    if not isinstance(first.fact, SessionForked):
        raise CannotRunSafely(
            f"the first event of the fork {row.session_id} was erased, so it cannot be identified; use another key"
        )
    return first.fact


def _check_kept(origin: SessionRow, point: Point) -> None:
    if point.kept:
        return
    seq = point.state.seq
    if point.later_seq:
        raise UsageError(
            f"session {origin.session_id} cannot be forked at {seq}: the first snapshot of its workspace is of event "
            f"{point.later_seq}; nothing was written: fork it at {point.later_seq} or at a later event"
        )
    why = f" ({point.trouble})" if point.trouble else ""
    raise CannotRunSafely(
        f"session {origin.session_id} cannot be forked: its workspace has no snapshot{why}, so the files of event "
        f"{seq} are not available; nothing was written. Snapshots are taken from the first call that may write, on "
        "machines with git: see `holdfast doctor`"
    )


async def _copy(shelf: Shelf, fork_id: str, workspace: Workspace, point: Point) -> str:
    """Restore the files of the point into the fork's workspace, and take its first snapshot."""
    path = Path(workspace.path)
    path.mkdir(mode=0o755)
    user = await anyio.to_thread.run_sync(choose_user, workspace)
    owner = Owner(user.uid, user.gid)
    await shelf.restore(point.kept, path, user=owner if os.geteuid() == 0 else None)
    await anyio.to_thread.run_sync(make_ready, workspace, user)
    return (await shelf.keep(fork_id, path, point.state.seq + 1, user=owner)).snapshot


async def _remove(shelf: Shelf, ground: Ground, fork_id: str) -> None:
    await anyio.to_thread.run_sync(_remove_folder, ground.workspaces / fork_id)
    await shelf.forget(fork_id)
    (ground.workspaces / f"{MARK}{fork_id}").unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    """Remove a folder, including folders that a snapshot made unwritable."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    if path.exists():
        shutil.rmtree(path)
