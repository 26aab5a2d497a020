"""The verb `migrate`: create or migrate the tables of a log in PostgreSQL."""

from __future__ import annotations

import argparse
from functools import partial

import anyio.to_thread

from holdfast.app.call import Call
from holdfast.errors import CannotRunSafely, UsageError

_EXAMPLE = "holdfast migrate postgresql://holdfast@db.example.com/agents"


def migrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `migrate`."""
    parser.add_argument(
        "address",
        metavar="URL",
        nargs="?",
        help="Address of the database, without a password (default: HOLDFAST_DB); libpq finds passwords in ~/.pgpass "
        "and PGPASSWORD",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def migrate_run(call: Call) -> int:
    """Create the tables of a log, or bring them to the version of this program. Safe to repeat."""
    try:
        from holdfast.log.postgres import connect, migrate
    except ImportError as error:
        raise CannotRunSafely(
            "the PostgreSQL client is not installed; nothing was changed: pip install 'holdfast[postgres]'"
        ) from error
    typed = call.args.address
    address = typed or call.settings.db
    if address.partition("://")[0] not in ("postgresql", "postgres"):
        raise UsageError(f"migrate needs the address of a PostgreSQL database; for example: {_EXAMPLE}")
    if typed and connect.has_password(typed):
        raise UsageError(
            "other users can read the arguments of a command, so they must not have a password; nothing was changed: "
            "put it into ~/.pgpass, or the address into HOLDFAST_DB"
        )
    place = connect.place_of(address)
    before, after = await anyio.to_thread.run_sync(partial(migrate.migrate, address))
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
