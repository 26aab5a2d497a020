"""A file whose tables are of version 1, as an earlier program wrote it, opens with nothing lost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_args

import anyio
import pytest

from holdfast.errors import LogDamaged, SchemaTooNew
from holdfast.facts.codec import body_digest, genesis
from holdfast.facts.hands import SessionTainted
from holdfast.facts.shift import ShiftEnded
from holdfast.log.sqlite import SqliteStore
from holdfast.log.verify import rebuild, verify
from holdfast.session.money import spent_within
from holdfast.session.rows import RowStatus
from holdfast.testing.log import Scenario
from tests.log.rigs import open_store, sqlite_rig

OLD = Path(__file__).with_name("tables_1.sql")


def old_file(home: Path) -> sqlite3.Connection:
    """The file of the earlier program, and a connection to it."""
    home.mkdir(exist_ok=True)
    connection = sqlite3.connect(home / "holdfast.db", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.executescript(OLD.read_text())
    return connection


def columns(path: Path) -> dict[str, set[tuple[str, str, int]]]:
    """Table → its columns: name, type, whether it must not be null."""
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return {
            table: {(name, kind, need) for _, name, kind, need, *_ in connection.execute(f"pragma table_info({table})")}
            for table in tables
        }


LATER_INDEXES = {
    4: ("sessions_runnable", "sessions_by_boot", "sessions_parked"),
    5: (
        *("sessions_newest", "sessions_by_root", "sessions_by_parent", "sessions_by_reason"),
        *(f"sessions_{status}_newest" for status in get_args(RowStatus)),
    ),
}
"""Version → the indexes that came with it."""

LATER_COLUMNS = {2: ("boot_id", "due_boot_us", "marks"), 3: ("boot_id", "due_boot_us"), 4: (), 5: ()}
"""Version → the columns of sessions that it does not have."""


def indexes(path: Path) -> set[str]:
    """The names of all indexes in a database."""
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("select name from sqlite_master where type = 'index'")}


async def test_an_old_file_becomes_what_its_events_say(holdfast_home: Path) -> None:
    old = old_file(holdfast_home)
    heads = dict(old.execute("select session_id, head from sessions").fetchall())
    spent = dict(old.execute("select account_id, spent_pico from accounts").fetchall())
    vocabularies = dict(old.execute("select session_id, vocabulary from sessions").fetchall())
    old.close()
    async with sqlite_rig(holdfast_home) as rig:
        store = rig.store
        assert (await verify(store)).findings == ()
        assert await rebuild(store) == await store.beside()
        rows = {row.session_id: row for row in await store.sessions()}
        assert {name: row.head for name, row in rows.items()} == heads
        assert [(row.root, row.depth, row.name) for row in rows.values()] == [(name, 0, "agent") for name in rows]
        assert (await store.beside()).vocabularies == vocabularies
        for account in await store.accounts():
            assert account.spent_pico == spent[account.account_id]
            last = rows["ses_a"].updated_us
            assert spent_within(account.spend, "week", last) == account.spent_pico
        assert {account.cap_pico for account in await store.accounts()} == {None, 2_000}
        case = Scenario(rig)
        lease = await case.take("ses_a")
        (start,) = await case.append(lease, case.request(40))
        await case.append(lease, case.response(start.seq, 10))
        assert (await verify(store)).findings == ()


async def test_the_tables_are_those_of_a_new_file(holdfast_home: Path, tmp_path: Path) -> None:
    old_file(holdfast_home).close()
    for home in (holdfast_home, tmp_path):
        async with await open_store(home):
            pass
    assert columns(holdfast_home / "holdfast.db") == columns(tmp_path / "holdfast.db")


@pytest.mark.parametrize("version", [2, 3, 4, 5])
async def test_later_tables(holdfast_home: Path, tmp_path: Path, version: int) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        await case.open("ses_a")
        lease = await case.take("ses_a")
        await case.append(lease, case.draft(SessionTainted(reason="it has read")))
        (start,) = await case.append(lease, case.request(40))
        await case.append(lease, case.response(start.seq, None))
        parked = ShiftEnded(status="parked", reason="timer", due_us=9_000, boot_id="boot", booted_us=2_000)
        await case.append(lease, case.draft(parked))
    with sqlite3.connect(holdfast_home / "holdfast.db") as old:
        old.execute("update sessions set marks = 'tainted'")
        for index in (*(LATER_INDEXES[5] if version < 5 else ()), *(LATER_INDEXES[4] if version < 4 else ())):
            old.execute(f"drop index {index}")
        for column in LATER_COLUMNS[version]:
            old.execute(f"alter table sessions drop column {column}")
        old.execute("update meta set value = ? where name = 'schema'", (str(version),))
    async with await open_store(holdfast_home) as store:
        row = await store.find("ses_a")
        assert (row.marks, row.boot_id, row.due_boot_us) == ("tainted unpriced", "boot", 7_000)
        assert (await verify(store)).findings == ()
    async with await open_store(tmp_path):
        pass
    assert columns(holdfast_home / "holdfast.db") == columns(tmp_path / "holdfast.db")
    assert indexes(holdfast_home / "holdfast.db") == indexes(tmp_path / "holdfast.db")


async def test_many_open_an_old_file_at_once(holdfast_home: Path) -> None:
    old_file(holdfast_home).close()
    opened: list[SqliteStore] = []

    async def reach() -> None:
        opened.append(await open_store(holdfast_home))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(reach)
    for store in opened:
        assert (await verify(store)).findings == ()
        await store.close()


async def test_what_is_damaged_or_erased_stays_as_it_is(holdfast_home: Path) -> None:
    old = old_file(holdfast_home)
    where = "where session_id = 'ses_b' and type = 'span.model_request_end'"
    ((body,),) = old.execute(f"select body from events {where}").fetchall()
    digest = body_digest(body)
    old.execute(f"update events set body = null, digest = ? {where}", (digest,))
    old.execute("insert into blobs (digest, bytes) values (?, null)", (digest,))
    old.execute("update events set body = '{}' where session_id = 'ses_c' and seq = 2")
    before = old.execute("select account_id, spent_pico, reserved_pico from accounts order by account_id").fetchall()
    heads = dict(old.execute("select session_id, head from sessions").fetchall())
    old.close()
    async with sqlite_rig(holdfast_home) as rig:
        store = rig.store
        assert {finding.session_id for finding in (await verify(store)).findings} == {"ses_c"}
        rows = {row.session_id: row for row in await store.sessions()}
        assert {name: row.head for name, row in rows.items()} == heads
        assert (rows["ses_b"].root, rows["ses_b"].turns, rows["ses_b"].cost_pico) == ("ses_b", 1, 50)
        assert [(a.account_id, a.spent_pico, a.reserved_pico) for a in await store.accounts()] == before
        assert len(await store.read("ses_a", prev=genesis("ses_a"))) == heads["ses_a"]


async def test_a_migration_that_fails_leaves_the_old_file(holdfast_home: Path) -> None:
    old = old_file(holdfast_home)
    old.execute("create table items (something text)")
    dump = list(old.iterdump())
    with pytest.raises(LogDamaged, match="nothing was written"):
        await open_store(holdfast_home)
    assert list(old.iterdump()) == dump
    old.execute("drop table items")
    old.close()
    async with await open_store(holdfast_home) as store:
        assert (await verify(store)).findings == ()


async def test_a_newer_file_is_refused(holdfast_home: Path) -> None:
    old = old_file(holdfast_home)
    old.execute("update meta set value = '99' where name = 'schema'")
    old.close()
    with pytest.raises(SchemaTooNew):
        await open_store(holdfast_home)
