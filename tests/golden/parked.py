"""Makes a home whose sessions rest in every way the simulator knows: `python -m tests.golden.parked DIR`.

It lives through simulated worlds and writes what they commit into a real database, up to a random moment of each world,
as if the machine had failed there. Only worlds with a session that rests in a new way are kept. DIR gets `home.db.xz`
and `expected.json.xz`: the folded state of each session and its brief, as the code that made them reads them. A home
that is there is frozen; make another one beside it with later code.
"""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import msgspec

from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.facts.session import SessionCreated
from holdfast.kinds import KINDS
from holdfast.log.memory import MemoryStore
from holdfast.log.sql.tables import write
from holdfast.log.sqlite.connect import SqliteDatabase, connect
from holdfast.log.sqlite.migrate import open_file
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.transaction import Transaction
from holdfast.session.home import HOME
from holdfast.sim.loop import Stuck, run
from holdfast.sim.missions.storm import MissionStorm
from holdfast.sim.missions.world import MissionWorld
from holdfast.sim.storm import Storm
from holdfast.sim.world import World

PLAIN, MISSIONS = 400, 40
"""Worlds that are tried."""

Ways = frozenset[tuple[object, ...]]
"""How each session of a world rests: its kind, status, reason, whether it is held and due, and what it asks."""


def worlds() -> Iterator[tuple[World, Storm, int]]:
    """Worlds to try, each with the number of transactions after which its machine fails."""
    chance = Random("holdfast parked homes")
    for seed in range(PLAIN):
        world = World(seed)
        yield world, Storm(world), chance.randint(2, 120)
    for seed in range(PLAIN, PLAIN + MISSIONS):
        mission = MissionWorld(seed, calm=False)
        yield mission, MissionStorm(mission), chance.randint(10, 400)


def lived(world: World, storm: Storm, most: int) -> list[Transaction]:
    """Return the first transactions of a world."""
    kept: list[Transaction] = []
    commit = world.store._commit

    def watched(transaction: Transaction) -> None:
        commit(transaction)
        if len(kept) < most:
            kept.append(transaction)

    world.store._commit = watched  # type: ignore[method-assign]
    try:
        run(world.loop, storm.run())
    except Stuck:
        kept.clear()
    return kept


def ways(transactions: list[Transaction]) -> Ways:
    """Return how the sessions of a world rest after these transactions."""
    rows = {session_id: row for each in transactions for session_id, row in each.rows.items()}
    items = {item_id: item for each in transactions for item_id, item in each.items.items()}
    created = {
        sealed.event.session_id: sealed.event.fact
        for each in transactions
        for sealed in each.sealed
        if isinstance(sealed.event.fact, SessionCreated)
    }
    found = set()
    for session_id, row in rows.items():
        fact = created.get(session_id)
        role = fact.role.kind if fact is not None and fact.role is not None else ""
        mission = fact is not None and fact.mission is not None
        asked = sorted(
            {item.kind for item in items.values() if item.session_id == session_id and item.status == "open"}
        )
        due = row.due_us is not None
        found.add((mission, role, row.status, row.reason, bool(row.holder), due, bool(row.origin), *asked))
    return frozenset(found)


def fill(database: Path) -> None:
    """Write the worlds that show something new into a database."""
    open_file(database, 5.0)
    connection = connect(database, 5.0)
    seen: set[tuple[object, ...]] = set()
    homes = 0
    for world, storm, most in worlds():
        transactions = lived(world, storm, most)
        touched = any(HOME in each.rows for each in transactions)
        found = ways(transactions)
        if found <= seen or (touched and homes):
            continue
        homes += touched
        seen |= found
        connection.execute("BEGIN IMMEDIATE")
        for each in transactions:
            write(SqliteDatabase(connection), each)
        connection.execute("COMMIT")
    print(f"{len(seen)} ways to rest")
    for way in sorted(seen, key=str):
        print("  ", *way)
    connection.close()


async def folded(database: Path) -> dict[str, Any]:
    """Return the state of each session, folded from its first event."""
    states = {}
    async with await SqliteStore.open(database, workers=database.parent, clock=SystemClock()) as store:
        for row in await store.sessions(home=True):
            state, _ = await recall(row.session_id, store, MemoryStore(SystemClock()), KINDS)
            states[row.session_id] = msgspec.to_builtins(state, str_keys=True, enc_hook=lambda tenant: tenant.own)
    return states


def told(home: Path, session_id: str) -> Any:
    """Return the brief of a session as the command prints it."""
    command = [sys.executable, "-m", "holdfast", "brief", session_id, "--json"]
    done = subprocess.run(command, env=os.environ | {"HOLDFAST_HOME": str(home)}, capture_output=True, check=True)
    return json.loads(done.stdout)


def main(out: Path) -> None:
    """Make the home."""
    home = out / "home"
    home.mkdir(parents=True)
    database = home / "holdfast.db"
    fill(database)
    states = anyio.run(folded, database)
    briefs = {session_id: told(home, session_id) for session_id in states if session_id != HOME}
    expected = {"states": states, "briefs": briefs}
    connection = sqlite3.connect(database)
    connection.execute("VACUUM INTO ?", (str(out / "small.db"),))
    (out / "home.db.xz").write_bytes(lzma.compress((out / "small.db").read_bytes()))
    (out / "expected.json.xz").write_bytes(lzma.compress(json.dumps(expected, sort_keys=True).encode()))
    print(len(states), "sessions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
