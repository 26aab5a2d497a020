"""The verbs of a home's life cycle: rm, prune, backup, restore, migrate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from holdfast.app.call import Call, span
from holdfast.app.compose import PROGRAM, Runtime, open_runtime
from holdfast.app.exits import SHORT, short_name
from holdfast.app.settings.config import database_path, local_caller
from holdfast.app.settings.policies import retention
from holdfast.app.settings.values import postgres_address, size_text
from holdfast.app.trust_prompt import can_ask, confirmed
from holdfast.clock import SystemClock, local_time
from holdfast.environment.store import LayerStore
from holdfast.errors import CannotRunSafely, UnknownSession, UsageError
from holdfast.facts.codec import SCHEMA
from holdfast.ids import new_event_id, system_entropy
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.repo.git_repository import GitRepository
from holdfast.service import backup, space
from holdfast.service.event_lines import counted
from holdfast.service.leftovers import Premises
from holdfast.service.removal import Tree, remove_tree, tidy, trees_to_remove, were_removed

CANCEL_S = 10.0
"""Time that a running session gets to end before it is removed by force, in seconds."""

NAMED = 10
"""Number of things that exist only here that are named; --json names all."""


def premises(runtime: Runtime) -> Premises:
    """The home as its life cycle sees it."""
    return Premises(
        store=runtime.store,
        home=runtime.home.path,
        clock=SystemClock(),
        shelf=runtime.shelf,
        layers=LayerStore(runtime.home.path / "environments", SystemClock()),
        repository=lambda path: GitRepository(path, runtime.home.path / "repositories"),
        search=SearchIndex(search_path(database_path(runtime.settings))),
        actor=runtime.intake.actor,
    )


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rm`."""
    parser.add_argument("sessions", metavar="ID", nargs="+", help="Session IDs or keys; their children go with them")
    parser.add_argument("--force", action="store_true", help="Also remove sessions that run or can still run")
    parser.add_argument("--dry-run", action="store_true", help="Only list what would be removed")
    parser.add_argument("--yes", action="store_true", help="Do not ask")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def rm_run(call: Call) -> int:
    """Remove session trees with everything that only they hold."""
    async with open_runtime(call.settings) as runtime:
        place = premises(runtime)
        try:
            trees = await trees_to_remove(place, call.args.sessions)
        except UnknownSession:
            if call.args.dry_run or not await were_removed(place, call.args.sessions):
                raise
            await tidy(place)  # a removal that was killed after its log was gone
            call.say("removed before; what was left of it is gone now")
            return 0
        for tree in trees:
            _list(call, tree)
        if call.args.dry_run:
            call.note("nothing was removed")
            return 0
        if not call.args.force:
            _check_over(call, trees)
        if not call.args.yes:
            if not can_ask(call):
                raise UsageError("removing sessions cannot be undone; nothing was removed: add --yes")
            if not await confirmed(f"Remove {counted(len(trees), 'session tree')} for good?"):
                call.note("nothing was removed")
                return 0
        for tree in trees:
            await _remove(runtime, tree)
            if call.json:
                call.emit({"type": "removed", "session_id": tree.root.session_id, "sessions": len(tree.rows)})
            else:
                call.say(f"removed {short_name(tree.root)}")
        await tidy(place)
    return 0


def _list(call: Call, tree: Tree) -> None:
    if call.json:
        rows = [
            {"session_id": row.session_id, "state": row.status, "events": row.head - row.origin_seq}
            for row in tree.rows
        ]
        call.emit({"type": "tree", "sessions": rows, "workspaces": tree.workspaces, "refs": tree.refs})
        return
    state = "running" if tree.running else tree.unfinished[0].status if tree.unfinished else tree.root.status
    events = sum(row.head - row.origin_seq for row in tree.rows)
    call.say(f"{short_name(tree.root)}  {state}  {counted(len(tree.rows), 'session')}, {counted(events, 'event')}")
    for path in tree.workspaces:
        call.say(f"  workspace {path}")
    for repo, refs in tree.refs.items():
        call.say(f"  {counted(len(refs), 'ref')} of the mission in {repo}; its branch main stays")


def _check_over(call: Call, trees: Sequence[Tree]) -> None:
    """Raise `UsageError` for trees that run or can still run."""
    for tree in trees:
        for row in (*tree.running, *tree.unfinished):
            what = "is running" if tree.running else f"is {row.status} and can still run"
            raise UsageError(
                f"{short_name(row)} {what}; nothing was removed: end it with `{call.typed('cancel', row.session_id)}`, "
                "or add --force"
            )


async def _remove(runtime: Runtime, tree: Tree) -> None:
    """Cancel what runs in a tree, and remove the tree as it is then."""
    for row in tree.running:
        if row.status != "cancelled":
            await runtime.intake.cancel(row, "it is to be removed")
    with anyio.move_on_after(CANCEL_S if tree.running else 0):
        token = 0
        while {row.session_id for row in tree.rows} & (await runtime.store.holders()).keys():
            token = await runtime.store.changed(token)
    (now,) = await trees_to_remove(premises(runtime), [tree.root.session_id]) if tree.running else (tree,)
    await remove_tree(premises(runtime), now)


def prune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prune`."""
    parser.add_argument(
        "--older-than", metavar="AGE", type=span, help="Leave sessions alone that ended later (default: 30d)"
    )
    parser.add_argument("--dry-run", action="store_true", help="Only show what would be freed")
    parser.add_argument("--yes", action="store_true", help="Also free what exists only here, without asking")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def prune_run(call: Call) -> int:
    """Free the space of finished sessions; their logs stay."""
    age_s = call.args.older_than or retention(call.settings).older_than_s
    async with open_runtime(call.settings) as runtime:
        items = await space.find(premises(runtime), runtime.kinds, SystemClock().now_us() - round(age_s * 1e6))
        only_here = [item for item in items if item.only_here]
        if call.args.dry_run:
            _table(call, items, "would free")
            _name(call, only_here)
            return 0
        agreed = call.args.yes
        if only_here and not agreed:
            _name(call, only_here)
            agreed = can_ask(call) and await confirmed(f"Delete {counted(len(only_here), 'thing')} for good?")
        done = await space.free(premises(runtime), items if agreed else [item for item in items if not item.only_here])
        _table(call, done, "freed")
        if only_here and not agreed and not can_ask(call):
            call.note("what exists only here was left; to delete it too, add --yes")
    return 0


def _table(call: Call, items: Sequence[space.Item], what: str) -> None:
    rows = []
    for kind, title in space.KINDS.items():
        mine = [item for item in items if item.kind == kind]
        rows.append((title, len(mine), sum(item.bytes for item in mine)))
        if call.json:
            call.emit({"type": kind, "count": rows[-1][1], "bytes": rows[-1][2]})
    total = sum(size for _, _, size in rows)
    if call.json:
        call.emit({"type": "total", "count": len(items), "bytes": total, "dry_run": bool(call.args.dry_run)})
        return
    for title, count, size in rows:
        if count:
            call.say(f"{title:<27}  {count:>6}  {size_text(size):>10}")
    call.say(f"{what:<27}  {len(items):>6}  {size_text(total):>10}")


def _name(call: Call, only_here: Sequence[space.Item]) -> None:
    """Name what exists only here, with the reasons."""
    for item in only_here if call.json else only_here[:NAMED]:
        if call.json:
            call.emit({"type": "only_here", **msgspec.to_builtins(item)})
        else:
            name = item.paths[0] if item.kind == "refs" else f"{item.kind} of {item.session_id[-SHORT:]}"
            call.note(f"only here: {name}: {item.only_here}")
    if not call.json and len(only_here) > NAMED:
        call.note(f"only here: {len(only_here) - NAMED} more; --json names them all")


def backup_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `backup`."""
    parser.add_argument("file", metavar="FILE", type=Path, help="Archive to write: .tar or .tar.gz")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def backup_run(call: Call) -> int:
    """Back up the home, also while sessions run."""
    file, clock = call.args.file.absolute(), SystemClock()
    if postgres_address(call.settings.db):
        raise CannotRunSafely("the log of this home is in PostgreSQL; nothing was saved: back that up with pg_dump")
    backup.mode_of(file)
    async with open_runtime(call.settings) as runtime:
        home, at_us = runtime.home.path, clock.now_us()
        manifest = backup.Manifest(backup.FORM, new_event_id(at_us, system_entropy), at_us, str(home), PROGRAM, SCHEMA)
        saved = await backup.back_up(home, database_path(call.settings), file, manifest)
    if call.json:
        call.emit({"file": str(file), **msgspec.to_builtins(saved)})
        return 0
    parts = {"holdfast.db": "the log", "snapshots": "snapshots of workspaces", "secrets": "secrets"}
    for part, title in parts.items():
        if part in saved.bytes:
            call.say(f"{title:<24}  {size_text(saved.bytes[part]):>10}")
    call.say(f"backed up {counted(saved.sessions, 'session')} to {file}")
    if saved.secrets:
        call.note(f"with the values of secrets that are in the home: {', '.join(saved.secrets)}")
    call.note("not in it: folders given with --workspace, repositories, environments,")
    call.note("your own settings, and what workspaces hold beyond their snapshots")
    return 0


def restore_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `restore`."""
    parser.add_argument("file", metavar="FILE", type=Path, help="Archive that `holdfast backup` wrote")
    parser.add_argument("--to", metavar="HOME", type=Path, help="New or empty folder (default: the home)")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def restore_run(call: Call) -> int:
    """Restore a home from a backup, and verify it."""
    home = (call.args.to or Path(call.settings.home)).absolute()
    done = await backup.restore(call.args.file, home, SystemClock(), system_entropy, local_caller("cli"))
    if call.json:
        call.emit({"home": str(home), **msgspec.to_builtins(done)})
        return 0
    call.say(f"{counted(done.sessions, 'session')}, {counted(done.events, 'event')}: all chains and rows verify")
    call.say(f"restored the home of {local_time(done.manifest.at_us)} in {home}")
    if done.told:
        call.note(f"{counted(done.told, 'session')} can go on, and may have done more since: each is told so.")
        call.note("Run a session in one home only.")
    return 0
