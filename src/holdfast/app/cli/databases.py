"""The verb that prepares databases: tables, another home, and copies of a whole log."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime, postgres
from holdfast.app.home import open_home, workers
from holdfast.app.settings.config import database_path
from holdfast.app.settings.values import postgres_address
from holdfast.errors import LogDamaged, UsageError
from holdfast.ids import system_entropy
from holdfast.log.search.index import search_path
from holdfast.log.verify import verify
from holdfast.log.worker_locks import is_live
from holdfast.service.event_lines import counted


def migrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `migrate`."""
    parser.add_argument(
        "address",
        metavar="URL",
        nargs="?",
        help="Address of the database, without a password (default: HOLDFAST_DB); libpq finds passwords in ~/.pgpass "
        "and PGPASSWORD",
    )
    parser.add_argument(
        "to",
        metavar="TO",
        nargs="?",
        help="Copy the log at URL to this address, and verify it there: from sqlite:///PATH to PostgreSQL, or back",
    )
    parser.add_argument(
        "--take-over", action="store_true", help="Continue the log in this home: the machine of its own home is lost"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def migrate_run(call: Call) -> int:
    """Create the tables of a log, or bring them to the version of this program; or copy a log."""
    if call.args.to:
        return await _copy(call)
    address = postgres_address(call.args.address or call.settings.db)
    if not address:
        raise UsageError(
            "migrate needs the address of a PostgreSQL database; for example: "
            "holdfast migrate postgresql://holdfast@db.example.com/agents"
        )
    place = postgres("connect").place_of(address)
    if call.args.take_over:
        return await _take_over(call, address, place)
    before, after = await anyio.to_thread.run_sync(partial(postgres("migrate").migrate, address))
    if call.json:
        call.emit({"database": place, "from": before, "to": after})
    elif before == after:
        call.say(f"{place}: the tables have version {after}; nothing to do")
    else:
        call.say(
            f"{place}: {'created the tables,' if not before else f'migrated the tables from version {before} to'} "
            f"version {after}"
        )
    return 0


async def _take_over(call: Call, address: str, place: str) -> int:
    """Make the home of this command the one that a log in PostgreSQL belongs to."""
    home, tables = open_home(Path(call.settings.home)), postgres("migrate")
    here = tables.place_id_in(home.workers, system_entropy)
    before = await anyio.to_thread.run_sync(partial(tables.take_over, address, here))
    if call.json:
        call.emit({"database": place, "from": before, "to": here})
    elif not before:
        call.say(f"{place} belongs to this home already; nothing to do")
    else:
        call.say(f"{place} belongs to this home now, and no more to {before}")
        call.note(
            "Sessions continue with the next worker. Commands that ran on the lost machine have an unknown outcome."
        )
        if not call.settings.objects:
            call.note("Their workspaces are lost with it: no object store is set (docs/lost-machines.md).")
    return 0


async def _copy(call: Call) -> int:
    """Copy a log from a file to PostgreSQL, or back, and verify it there. The target is complete, or as before."""
    former, to = (replace(call.settings, db=each) for each in (call.args.address, call.args.to))
    source, target = postgres_address(former.db), postgres_address(to.db)
    if bool(source) == bool(target):
        raise UsageError(
            "migrate copies a log from a file to PostgreSQL, or back; for example: "
            "holdfast migrate sqlite:////var/lib/agents.db postgresql://holdfast@db.example.com/agents"
        )
    home, copying = open_home(Path(call.settings.home)), postgres("copying")
    if running := workers(home, database_path(former)):
        raise UsageError(f"worker {running[0]} serves this log; nothing was copied: stop it, and try again")
    is_alive = partial(is_live, home.workers)
    file = database_path(to if source else former)
    draft = file.with_name(f".{file.name}.copying")
    if source:
        _remove(draft)
        copied = await anyio.to_thread.run_sync(copying.to_file, source, file, draft, is_alive)
        to = replace(to, db=f"sqlite:///{draft}")
    else:
        copied = await anyio.to_thread.run_sync(copying.to_postgres, file, target, is_alive)
    async with open_runtime(to) as runtime:
        findings = (await verify(runtime.store)).findings
    if findings:
        if target:
            await anyio.to_thread.run_sync(copying.empty, target)
        _remove(draft)
        raise LogDamaged(f"the copy does not verify ({findings[0].message}), and was removed: see `holdfast verify`")
    if source:
        os.link(draft, file)  # fails if the name was taken meanwhile
        _remove(draft)
    _remove(search_path(home.database))  # its positions are those of the former log
    if call.json:
        call.emit({"from": call.args.address, "to": call.args.to, "sessions": copied.sessions, "events": copied.events})
        return 0
    call.say(
        f"copied {counted(copied.sessions, 'session')}, {counted(copied.events, 'event')}: all chains and rows verify"
    )
    call.note(f"Set HOLDFAST_DB={call.args.to} from now on. The former log is as it was; do not use it any more.")
    return 0


def _remove(file: Path) -> None:
    """Delete a database file, with what SQLite keeps beside it."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
