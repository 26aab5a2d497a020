"""Space that finished sessions take in a home, and how to free it without touching their logs.

What can be had again (from the snapshot store, from another ref, by fetching) is freed without a question. What exists
only here is named with the reason, and freed only if the caller confirms it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import anyio.to_thread
import msgspec

from holdfast.brain.acts.hands import TIDY_S
from holdfast.brain.recall import may_testify
from holdfast.environment.layers import remove as remove_path
from holdfast.environment.layers import size_of
from holdfast.errors import HoldfastError, RepositoryUnfit
from holdfast.facts.session import SessionCreated
from holdfast.hands.incarnation import at_work, forsaken, remnants, remove
from holdfast.hands.limits.plan import baseline_name
from holdfast.kinds import MISSION
from holdfast.log.base import each_session
from holdfast.repo.base import Owner
from holdfast.repo.plumbing.objects import is_git_name
from holdfast.service.intake import OVER
from holdfast.service.leftovers import Premises, clear_removed, drop_refs, proxy_folders, refs_of
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds

Kind = Literal["workspaces", "snapshots", "layers", "usage", "egress", "sandboxes", "refs"]

KINDS: dict[Kind, str] = {
    "workspaces": "workspaces made by Holdfast",
    "snapshots": "earlier snapshots",
    "layers": "unused environment layers",
    "usage": "counts of the disk limit",
    "egress": "files of egress proxies",
    "sandboxes": "sandboxes left by crashes",
    "refs": "refs of finished missions",
}
"""What can be freed, with a description."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be freed. `only_here` is the reason why it cannot be had again, empty if it can.

    `paths` are folders, files, names of snapshots, or a ref; `at` is the commit of the ref, and `repo` its repository.
    """

    kind: Kind
    paths: tuple[str, ...]
    bytes: int = 0
    session_id: str = ""
    only_here: str = ""
    repo: str = ""
    at: str = ""


class Home(msgspec.Struct, frozen=True):
    """The sessions of a home. `over` are those of trees that ended before a time, `others` all the rest."""

    over: dict[str, SessionRow]
    others: dict[str, SessionRow]
    forked: frozenset[str]


async def look(place: Premises, before_us: int) -> Home:
    """Read which sessions are over: every session of the tree has ended, and nothing happened since `before_us`."""
    trees: dict[str, list[SessionRow]] = {}
    async for row in each_session(place.store):
        trees.setdefault(row.root, []).append(row)
    held = await place.store.holders()
    over: dict[str, SessionRow] = {}
    others: dict[str, SessionRow] = {}
    for rows in trees.values():
        ended = all(row.status in OVER and row.updated_us < before_us and row.session_id not in held for row in rows)
        (over if ended else others).update((row.session_id, row) for row in rows)
    forked = frozenset(row.origin for row in (*over.values(), *others.values()) if row.origin)
    return Home(over, others, forked)


async def find(place: Premises, kinds: Kinds, before_us: int) -> list[Item]:
    """Find what can be freed of sessions that ended before a time. Changes nothing."""
    home = await look(place, before_us)
    working = await anyio.to_thread.run_sync(at_work, place.home / "hands")
    unused = await anyio.to_thread.run_sync(place.layers.unused, before_us / 1_000_000)
    idle = {name: row for name, row in home.over.items() if working is not None and name not in working}
    return [
        *await _workspaces(place, home, idle),
        *await _snapshots(place, home),
        *(Item(kind="layers", paths=(str(folder),), bytes=size) for folder, size in unused),
        *await anyio.to_thread.run_sync(_usage, place, home),
        *await anyio.to_thread.run_sync(_egress, place, idle),
        *await _sandboxes(place, kinds),
        *await _refs(place, home),
    ]


async def _workspaces(place: Premises, home: Home, idle: dict[str, SessionRow]) -> list[Item]:
    kept = await place.shelf.kept() if place.shelf is not None else {}
    used = {row.workspace for row in home.others.values()}
    found = []
    for row in idle.values():
        path = place.workspace_of(row)
        if path is None or path.is_symlink() or not path.is_dir():
            continue
        if not os.listdir(path):  # nothing to free, and no snapshot to restore it from
            continue
        if any(Path(each).is_relative_to(path) for each in used):
            continue
        size = await anyio.to_thread.run_sync(size_of, path)
        why = await _only_here(place, row, path, kept.get(row.session_id, ()))
        found.append(Item(kind="workspaces", paths=(str(path),), bytes=size, session_id=row.session_id, only_here=why))
    return found


async def _only_here(place: Premises, row: SessionRow, path: Path, kept: Sequence[str]) -> str:
    """Return why a workspace cannot be restored as it is, empty if it can be."""
    if place.shelf is None or not kept:
        return "it has no snapshot"
    status = path.stat()
    root = os.geteuid() == 0
    user = Owner(status.st_uid, status.st_gid) if root and status.st_uid else None
    try:
        now = await place.shelf.look(row.session_id, path, user=user if root else Owner(os.getuid(), os.getgid()))
    except HoldfastError as error:
        return f"it cannot be compared with its snapshots: {error}"
    with_git = await anyio.to_thread.run_sync(_git_folder, path)
    if with_git:
        return f"no snapshot has {with_git}"
    if now.skipped_total:
        return f"no snapshot has {now.skipped[0].path}: {now.skipped[0].why}"
    return "" if now.snapshot == kept[-1] else "it changed after its last snapshot"


def _git_folder(path: Path) -> str:
    """Return the first entry that snapshots leave out by its name, empty for none."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if is_git_name(os.fsencode(name)):
                return os.path.relpath(os.path.join(folder, name), path)
    return ""


async def _snapshots(place: Premises, home: Home) -> list[Item]:
    """Snapshots before the last one of each session, unless a fork may go back to them. The bytes are averages."""
    if place.shelf is None:
        return []
    kept = (await place.shelf.kept()).items()
    earlier = {name: tuple(names[:-1]) for name, names in kept if name in home.over and name not in home.forked}
    earlier = {name: names for name, names in earlier.items() if names}
    share = await place.shelf.frees(earlier) // max(1, sum(map(len, earlier.values())))
    return [
        Item(
            kind="snapshots",
            paths=names,
            bytes=share * len(names),
            session_id=name,
            only_here=f"{len(names)} earlier states of its files",
        )
        for name, names in earlier.items()
    ]


def _usage(place: Premises, home: Home) -> list[Item]:
    folder = place.home / "usage"
    files = {path.name: path for path in (folder.iterdir() if folder.is_dir() else ())}
    for row in home.others.values():
        files.pop(baseline_name(row.session_id, row.workspace), None)
    return [Item(kind="usage", paths=(str(path),), bytes=path.stat().st_blocks * 512) for path in files.values()]


def _egress(place: Premises, idle: Collection[str]) -> list[Item]:
    found = []
    for name in sorted(idle):
        folders = [path for path in proxy_folders(place.home, name) if path.is_dir() and not path.is_symlink()]
        if folders:
            size = sum(map(size_of, folders))
            found.append(Item(kind="egress", paths=tuple(map(str, folders)), bytes=size, session_id=name))
    return found


async def _sandboxes(place: Premises, kinds: Kinds) -> list[Item]:
    """Folders of dead sandboxes that no log needs as evidence."""
    hands = place.home / "hands"
    gone = []
    for session_id, folder in await anyio.to_thread.run_sync(forsaken, hands):
        if not await may_testify(session_id, folder.name, place.store, place.store, kinds):
            gone.append(folder)
    gone += await anyio.to_thread.run_sync(remnants, hands, place.clock)
    return [Item(kind="sandboxes", paths=(str(folder),), bytes=size_of(folder)) for folder in gone]


async def _refs(place: Premises, home: Home) -> list[Item]:
    """Refs of missions that are over, beside their main branches."""
    over, busy = [], set()
    for row in (*home.over.values(), *home.others.values()):
        if row.name != MISSION or row.parent:
            continue
        first = await place.store.read(row.session_id, limit=1)
        created = first[0].fact if first else None
        if isinstance(created, SessionCreated) and created.mission is not None:
            if row.session_id in home.over:
                over.append((row, created))
            else:
                busy.add((created.mission.repo, created.mission.name))
    found = []
    for row, created in over:
        assert created.mission is not None
        repo = created.mission.repo
        if (repo, created.mission.name) in busy:
            continue
        refs = await refs_of(place, created)
        for ref, commit in refs.items():
            try:
                elsewhere = await place.repository(repo).leads(commit, refs.keys())
            except RepositoryUnfit:
                continue
            why = "" if elsewhere else f"no other ref leads to its commit {commit[:12]}"
            item = Item(kind="refs", paths=(ref,), session_id=row.session_id, only_here=why, repo=repo, at=commit)
            found.append(item)
    return found


async def free(place: Premises, items: Sequence[Item]) -> list[Item]:
    """Free these items, as far as their sessions are still over; returns those freed. Safe to repeat after a kill."""
    await place.empty()
    await clear_removed(place)
    done = []
    for item in items:
        if await _free(place, item):
            done.append(item)
    await place.empty()
    await place.store.sweep()
    if place.shelf is not None:
        await place.shelf.thin({item.session_id: item.paths for item in done if item.kind == "snapshots"})
        await place.shelf.tidy(timeout_s=TIDY_S)
    return done


async def _free(place: Premises, item: Item) -> bool:
    paths = tuple(map(Path, item.paths))
    match item.kind:
        case "workspaces" | "egress":
            row = await place.store.find(item.session_id)
            if item.kind == "egress":
                paths = proxy_folders(place.home, item.session_id)  # none if a proxy lives by now
            return row.status in OVER and await place.store.while_quiet(row, lambda: place.set_aside(*paths))
        case "layers":
            return await anyio.to_thread.run_sync(place.layers.discard, paths[0])
        case "refs":
            return bool(await drop_refs(place, item.repo, {item.paths[0]: item.at}))
        case "usage":
            await anyio.to_thread.run_sync(remove_path, paths[0])
        case "sandboxes":
            await anyio.to_thread.run_sync(remove, paths[0])
    return True
