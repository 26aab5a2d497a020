"""A log that is copied from a file to PostgreSQL and back is the same log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LogUnavailable, UsageError
from holdfast.ids import system_entropy
from holdfast.log.base import Post
from holdfast.log.postgres.copying import CHUNK, TABLES, empty, to_file, to_postgres
from holdfast.log.postgres.places import Place
from holdfast.log.sql.statements import schema
from holdfast.testing.log import CHECKS, Scenario
from tests.log.rigs import PostgresRig, open_postgres, open_store, sqlite_rig
from tests.support.databases import free_port, postgres_server

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"
FOLDERS = count(1)
HERE = Place("plc_here", "seat")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for the tests of this file."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address.replace("@", f":{PASSWORD}@")


def place(home: Path) -> Place:
    """The place of a home."""
    return Place.of(home / "workers", system_entropy)


def nobody(worker_id: str) -> bool:
    """No worker lives."""
    return False


def tables(file: Path) -> dict[str, list[Any]]:
    """All rows of a log, in their order."""
    with closing(sqlite3.connect(file)) as log:
        order = {"events": "rowid"}
        return {each: [*log.execute(f"select * from {each} order by {order.get(each, '1, 2')}")] for each in TABLES}


def test_every_table_is_copied() -> None:
    assert {*TABLES, "meta"} == {each.split()[2] for each in schema() if each.startswith("create table")}


@pytest.mark.parametrize("check", [*CHECKS][::4])
async def test_what_the_kit_leaves_is_the_same_there_and_back(
    check: str, holdfast_home: Path, tmp_path: Path, postgres: str
) -> None:
    async with sqlite_rig(holdfast_home) as rig:
        await CHECKS[check](rig)
    file, folder = holdfast_home / "holdfast.db", f"copy_{next(FOLDERS)}"
    copied = to_postgres(file, postgres, HERE, nobody, folder)
    assert to_file(postgres, tmp_path / "back", tmp_path / "back", folder) == copied
    found = tables(file)
    assert tables(tmp_path / "back") == found
    assert (copied.sessions, copied.events) == (len(found["sessions"]), len(found["events"]))


async def test_a_copy_goes_on_in_the_same_order(holdfast_home: Path, postgres: str) -> None:
    """With more events than are written at a time, and text that PostgreSQL has to escape."""
    folder = f"copy_{next(FOLDERS)}"
    async with sqlite_rig(holdfast_home) as rig:
        case = Scenario(rig)
        lease = await case.started()
        for _ in range(CHUNK // 100 + 1):
            await case.append(lease, *(case.result("a result") for _ in range(100)))
        await rig.store.post(Post("ses_b", "created", case.created("a\0b\ue0ff0c\ue0ff")), create=True)
        before = await rig.store.look(lambda look: [*look.tail(0, 10_000)])
    to_postgres(holdfast_home / "holdfast.db", postgres, place(holdfast_home), nobody, folder)
    store = await open_postgres(postgres, folder, holdfast_home)
    try:
        await store.append("ses_a", lease.epoch, [case.result("later")])
        after = await store.look(lambda look: [*look.tail(0, 10_000)])
        assert (await store.find("ses_b")).goal == "a\0b\ue0ff0c\ue0ff"
    finally:
        await store.close()
    assert [event for _, *event in after][:-1] == [event for _, *event in before]
    assert after[-1][0] > after[-2][0]


async def test_a_target_that_holds_a_log_is_refused_and_kept(
    holdfast_home: Path, tmp_path: Path, postgres: str
) -> None:
    folder, file = f"copy_{next(FOLDERS)}", holdfast_home / "holdfast.db"
    async with sqlite_rig(holdfast_home) as rig:
        await Scenario(rig).started()
    to_postgres(file, postgres, HERE, nobody, folder)
    with pytest.raises(UsageError, match="holds a log already; nothing was copied"):
        to_postgres(file, postgres, HERE, nobody, folder)
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError, match="exists; nothing was copied"):
        to_file(postgres, tmp_path / "there", tmp_path / "draft", folder)
    assert (tmp_path / "there").read_text() == "mine"
    empty(postgres, folder)
    to_postgres(file, postgres, HERE, nobody, folder)


async def test_a_log_at_work_is_refused(holdfast_home: Path, tmp_path: Path, postgres: str) -> None:
    folder = f"copy_{next(FOLDERS)}"
    async with sqlite_rig(holdfast_home) as rig:
        await Scenario(rig).started()
    with pytest.raises(LogUnavailable, match="a worker holds a session"):
        to_postgres(holdfast_home / "holdfast.db", postgres, HERE, lambda worker_id: True, folder)
    to_postgres(holdfast_home / "holdfast.db", postgres, place(holdfast_home), nobody, folder)
    async with await open_postgres(postgres, folder, holdfast_home) as there:
        case = Scenario(PostgresRig(postgres, folder, holdfast_home, there))
        await there.acquire("ses_a", case.shift("wrk_there"), steal=True)
        with pytest.raises(LogUnavailable, match="a worker holds a session"):
            to_file(postgres, tmp_path / "back", tmp_path / "back", folder)
    with pytest.raises(UsageError, match="there is no log in"):
        to_postgres(tmp_path / "nowhere", postgres, HERE, nobody, folder)
    assert not (tmp_path / "nowhere").exists()
    async with await open_store(holdfast_home) as store:
        assert await store.count() == 1
