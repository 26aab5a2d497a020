"""Reads of the inbox from a database: one state, few queries, and no post for an item that was seen."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from holdfast.clock import SystemClock
from holdfast.log.base import View
from holdfast.log.postgres.connect import FOLDER
from holdfast.log.postgres.migrate import migrate
from holdfast.service.inbox import OVERDUE_US, inbox, waiting
from holdfast.session.rows import ItemRow
from holdfast.testing.log import Scenario
from tests.log.rigs import PostgresRig, SqliteRig, open_postgres, postgres_rig, sqlite_rig
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


class Server:
    """A PostgreSQL that writes the statements of `address` to its log."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = f"{address}?options=-c%20log_statement%3Dall"
        self.secret = self.address.replace("@", f":{PASSWORD}@")
        self._log = log

    @contextmanager
    def statements(self) -> Iterator[list[tuple[str, str]]]:
        """The statements of the block, once it has ended, each after the process that ran it."""
        found: list[tuple[str, str]] = []
        before = len(self._log.read_text())
        yield found
        found += re.findall(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)", self._log.read_text()[before:])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("postgres")
    with postgres_server(folder, free_port(), PASSWORD) as address:
        yield Server(address, folder / "log")


async def ask(case: Scenario, *numbers: int) -> None:
    """Sessions that wait for an approver."""
    for number in numbers:
        lease = await case.started(f"ses_{number}")
        await case.append(lease, case.question(f"itm_{number}"), case.parked("person"))


async def test_a_page_takes_as_many_queries_for_one_item_as_for_twenty(holdfast_home: Path, server: Server) -> None:
    async with postgres_rig(holdfast_home, server.secret) as rig:
        case = Scenario(rig)
        counts = []
        for numbers in (range(1), range(1, 20)):
            await ask(case, *numbers)
            with server.statements() as found:
                entries = await inbox(rig.store, SystemClock().now_us())
            assert len([entry for entry in entries if entry.item is not None]) == numbers[-1] + 1
            ((reader, _),) = (each for each in found if each[1].lower().startswith("begin isolation level repeatable"))
            by_it = [statement.lower() for process, statement in found if process == reader]
            counts.append(by_it.index("commit") - by_it.index("begin isolation level repeatable read, read only"))
        assert counts[0] == counts[1] < 30


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_view_does_not_see_what_is_written_meanwhile(
    database: str, holdfast_home: Path, server: Server
) -> None:
    rigs = sqlite_rig(holdfast_home) if database == "sqlite" else postgres_rig(holdfast_home, server.secret)
    async with rigs as rig:
        assert isinstance(rig, SqliteRig | PostgresRig)
        await ask(Scenario(rig), 1)

        def work(view: View) -> list[list[ItemRow]]:
            before = view.items(open_only=True)
            with rig.sql() as sql:
                sql.execute("update items set title = 'another'")
            return [before, view.items(open_only=True)]

        before, after = await rig.store.view(work)
        assert before == after
        assert [item.title for item in await rig.store.items()] == ["another"]


async def test_a_second_look_posts_nothing(holdfast_home: Path, server: Server) -> None:
    migrate(server.secret)
    async with await open_postgres(server.secret, FOLDER, holdfast_home) as store:
        rig = PostgresRig(server.secret, FOLDER, holdfast_home, store)
        await ask(Scenario(rig), *range(20))
        rig.kill_all()
    env = {**os.environ, "PGPASSWORD": PASSWORD, "HOLDFAST_DB": server.address}
    command = [sys.executable, "-m", "holdfast", "inbox", "--plain"]
    posts = []
    for _ in range(2):
        with server.statements() as found, anyio.fail_after(PATIENCE_S):
            done = await anyio.run_process(command, env=env, check=False)
        assert (done.returncode, done.stdout.count(b"may it?")) == (0, 20), done.stderr
        posts.append(len([each for _, each in found if "pg_advisory_xact_lock(" in each or "insert into" in each]))
    assert posts[0] >= 20
    assert posts[1] == 0


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_the_number_of_entries_is_that_of_the_inbox(database: str, holdfast_home: Path, server: Server) -> None:
    """Also when a session was due and nobody runs it, or when its process died."""
    rigs = sqlite_rig(holdfast_home) if database == "sqlite" else postgres_rig(holdfast_home, server.secret)
    async with rigs as rig:
        case = Scenario(rig)
        await ask(case, 1)
        died = await case.started("ses_died")
        now_us = (await rig.store.find("ses_died")).updated_us
        timer, provider = case.parked("timer", now_us + 10 * OVERDUE_US), case.parked("provider", now_us + 1)
        for number, end in enumerate((timer, provider, case.parked("budget"), case.parked("child"))):
            await case.append(await case.started(f"ses_parked{number}"), end)
        needs = []
        for later, dead in ((0, False), (2, False), (2, True), (20, True)):
            if dead:
                rig.kill(died.worker_id)
            at_us = now_us + later * OVERDUE_US
            needs.append(sum(entry.group == "needs you" for entry in await inbox(rig.store, at_us)))
            assert await waiting(rig.store, at_us, 100) == needs[-1]
            assert await waiting(rig.store, at_us, 1) > 1
        assert needs == [2, 3, 4, 5]


async def test_a_session_that_is_taken_up_meanwhile_needs_nobody(
    holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was due when the due sessions were listed, and is held when the others are read."""
    async with sqlite_rig(holdfast_home) as rig:
        case, list_due = Scenario(rig), rig.store.due
        await case.open("ses_due")
        later_us = (await rig.store.find("ses_due")).updated_us + 2 * OVERDUE_US
        assert await waiting(rig.store, later_us, 100) == 1

        async def due(now_us: int) -> list[str]:
            found = await list_due(now_us)
            await case.take("ses_due")
            return found

        monkeypatch.setattr(rig.store, "due", due)
        assert await waiting(rig.store, later_us, 100) == 0
        assert await rig.store.holders() != {}
