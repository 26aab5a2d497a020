"""Every check of the kit on a real PostgreSQL, and what only that store has to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from holdfast.errors import EmergencyStop, Fenced, HeadMoved, HoldfastError, LogUnavailable, SchemaTooNew
from holdfast.facts.codec import genesis
from holdfast.log.base import Post
from holdfast.log.chain import StoredEvent
from holdfast.log.postgres.connect import SQL, Connection, PostgresDatabase, connect
from holdfast.log.postgres.migrate import TABLES, migrate
from holdfast.log.postgres.read import TableProbe
from holdfast.log.postgres.store import PostgresStore
from holdfast.session.home import HOME
from holdfast.testing.log import CHECKS, Scenario
from tests.log.rigs import PostgresRig, another_store, open_postgres, port_of, postgres_rig
from tests.support.commit_proxy import commit_proxy
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for the tests of this file."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address.replace("@", f":{PASSWORD}@")


@pytest.mark.parametrize("check", CHECKS)
async def test_store(check: str, holdfast_home: Path, postgres: str) -> None:
    async with postgres_rig(holdfast_home, postgres) as rig:
        await CHECKS[check](rig)


async def test_a_commit_without_an_answer_is_looked_up(holdfast_home: Path, postgres: str) -> None:
    """Appends and posts whose connection breaks at the commit are stored once, and nobody is told of a failure."""
    with commit_proxy(port_of(postgres)) as proxy:
        through = postgres.replace(f":{port_of(postgres)}/", f":{proxy.port}/")
        async with postgres_rig(holdfast_home, through) as rig:
            case = Scenario(rig)
            lease = await case.started()
            events = []
            for number, cut in enumerate(("before", "after", "after", "before", "after")):
                proxy.cuts.append(cut)  # type: ignore[arg-type]
                events += await case.append(lease, case.result(f"{number}"))
                proxy.cuts.append(cut)  # type: ignore[arg-type]
                receipt = await case.say("ses_a", f"k{number}")
                assert (receipt.seq, receipt.duplicate) == (events[-1].seq + 1, False)
            assert proxy.made == 10
            assert [event.seq for event in events] == [3, 5, 7, 9, 11]
            stored = await rig.store.read("ses_a", prev=genesis("ses_a"))
            assert [event for event in stored if event.seq in (3, 5, 7, 9, 11)] == events
            await case.whole()


async def test_a_row_in_memory_is_only_a_guess(holdfast_home: Path, postgres: str) -> None:
    """Two stores append to one session in turn, and the database's clock jumps: chain, rows, and times are right."""
    async with postgres_rig(holdfast_home, postgres) as rig, another_store(rig) as other:
        case = Scenario(rig)
        lease = await case.started()
        for turn in range(6):
            store = (rig.store, other)[turn // 2 % 2]
            before = (await case.row()).updated_us
            rig.advance(3_600.0)
            (event,) = await store.append("ses_a", lease.epoch, [case.result(f"{turn}")], head=2 + turn)
            assert event.at_us - before > 3_500_000_000
        await case.append(lease, case.parked(), head=8)
        await case.refused(HeadMoved, other.append("ses_a", lease.epoch, [case.result()], head=8))
        await case.take()
        await case.refused(Fenced, other.append("ses_a", lease.epoch, [case.result()]))
        await case.whole()


async def test_quiet_work_never_trusts_memory(holdfast_home: Path, postgres: str) -> None:
    """Work that needs a quiet session looks at the session, however well this process knows it."""
    async with postgres_rig(holdfast_home, postgres) as rig, another_store(rig) as other:
        case = Scenario(rig)
        lease = await case.started()
        await case.append(lease, case.parked())
        row, ran = await case.row(), []
        await other.acquire("ses_a", case.shift(rig.worker()))
        assert not await rig.store.while_quiet(row, lambda: ran.append(1))
        assert ran == []


async def test_the_tail_waits_for_an_earlier_transaction(holdfast_home: Path, postgres: str) -> None:
    """An event whose transaction began earlier and commits later is neither skipped nor overtaken."""
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = Scenario(rig)
        lease = await case.started()
        with rig.sql() as early, rig.sql() as watching:
            probe = TableProbe(watching)
            assert [probe.moved(), probe.moved()] == [True, False]
            early.execute("begin")
            PostgresDatabase(early).insert_event(("ses_0", 1, 0, 1, "t", b"h", b"{}", None))
            (later,) = await case.append(lease, case.result())
            assert [seq_of(each) for each in await tail(rig)] == [("ses_a", 1), ("ses_a", 2)]
            assert [probe.moved(), probe.moved()] == [True, False]
            early.execute("commit")
            assert [seq_of(each) for each in await tail(rig)][2:] == [("ses_0", 1), ("ses_a", later.seq)]
            assert [probe.moved(), probe.moved()] == [True, False]


LOOKS = {
    "due": {"now_us": 1, "future_us": 2**60, "boot_id": "boot", "up_us": 1},
    "due_later": {"now_us": 1, "boot_id": "boot", "up_us": 1},
    "held": {},
    "fleet": {},
    "served": {"session_id": "ses_a", "vocabulary": 1},
}
"""What an idle worker asks for again and again, with parameters."""

COPIES = """
create temporary table copied as select * from sessions where session_id = 'ses_a';
insert into sessions select (jsonb_populate_record(
    copied, jsonb_build_object('session_id', 'ses_' || n, 'due_us', (1::bigint << 50) + n)
)).* from copied, generate_series(1, 5000) n;
analyze sessions;
"""
"""Puts 5,000 sessions that wait for a time beside one that waits for nobody."""


async def test_an_idle_worker_reads_no_row_of_sessions_that_wait(holdfast_home: Path, postgres: str) -> None:
    """What it asks for costs the same beside 5,000 of them: an index serves each part."""
    async with postgres_rig(holdfast_home, postgres) as rig, another_store(rig):
        case = Scenario(rig)
        await case.append(await case.started(), case.parked())
        with rig.sql() as sql:
            sql.execute(COPIES)
            for name, values in LOOKS.items():
                plan = sql.execute(f"explain (analyze, timing off) {SQL[name]}", values, binary=False).fetchall()
                text = "\n".join(row[0] for row in plan)
                read = [int(rows) for rows in re.findall(r"(?:actual rows=|Removed by Filter: )(\d+)", text)]
                assert max(read) < 50, text


async def tail(rig: PostgresRig) -> list[tuple[int, str, StoredEvent]]:
    return await rig.store.look(lambda look: list(look.tail(0, 100)))


def seq_of(found: tuple[int, str, StoredEvent]) -> tuple[str, int]:
    return found[1], found[2][0]


async def test_crossing_appends_do_not_block_each_other(holdfast_home: Path, postgres: str) -> None:
    """Sessions that post to each other at once, under one cap, all succeed, in two stores on the same tables."""
    async with postgres_rig(holdfast_home, postgres) as rig, another_store(rig) as other:
        case = Scenario(rig)
        await case.open("ses_root", cap=10_000)
        names = [f"ses_{number}" for number in range(6)]
        leases = {}
        for name in names:
            await case.open(name, accounts=(name, "ses_root"))
            leases[name] = await case.take(name)

        async def work(store: PostgresStore, name: str) -> None:
            for turn in range(5):
                posts = [Post(each, f"{name}.{turn}", case.message()) for each in reversed(names) if each != name]
                await store.append(name, leases[name].epoch, [case.request(1), case.result()], posts=posts)

        async with anyio.create_task_group() as group:
            for number, name in enumerate(names):
                group.start_soon(work, (rig.store, other)[number % 2], name)
        assert {(await case.row(name)).head for name in names} == {2 + 5 * 2 + 5 * 5}
        assert ("ses_root", 10_000, 0, 30) in await case.books()
        await case.whole()


async def test_another_store_is_woken(holdfast_home: Path, postgres: str) -> None:
    """Waiters of one process see what another one appends."""
    async with postgres_rig(holdfast_home, postgres) as rig, another_store(rig) as other:
        case = Scenario(rig)
        lease = await case.started()
        with anyio.fail_after(PATIENCE_S):
            token = await other.changed(1)  # the first poll counts as a move
            async with anyio.create_task_group() as group:
                group.start_soon(other.wait, "ses_a", 2)
                group.start_soon(other.changed, token)
                await anyio.wait_all_tasks_blocked()
                await case.append(lease, case.result())


async def test_a_stop_that_waits_goes_before_later_starts(holdfast_home: Path, postgres: str) -> None:
    """A shift that asks for its lease while a stop is being written is refused, however they end."""
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = Scenario(rig)
        await case.open()
        refused = []

        async def start() -> None:
            refused.append(await case.refused(EmergencyStop, case.take()))

        with rig.sql() as holding, rig.sql() as watching:
            holding.execute("begin")
            PostgresDatabase(holding).run("lock_sessions", {"names": [HOME]})
            async with anyio.create_task_group() as group:
                tasks: tuple[Callable[[], Coroutine[None, None, object]], ...] = (case.stop, start)
                for number, task in enumerate(tasks, 1):
                    group.start_soon(task)
                    with anyio.fail_after(PATIENCE_S):
                        while waiting(watching) < number:
                            await anyio.lowlevel.checkpoint()
                holding.execute("commit")
        assert len(refused) == 1


def waiting(sql: Connection) -> int:
    ((count,),) = sql.execute("select count(*) from pg_locks where locktype = 'advisory' and not granted").fetchall()
    return int(count)


async def test_a_text_with_a_nul_is_kept(holdfast_home: Path, postgres: str) -> None:
    """A goal with characters that PostgreSQL cannot store, or that stand for them, reads back as it was."""
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = Scenario(rig)
        goal = "a\0b\ue0ff0c\ue0ff"
        await rig.store.post(Post("ses_a", "created", case.created(goal)), create=True)
        assert (await case.row()).goal == goal
        await case.whole()


async def test_a_server_that_is_killed_is_waited_for(holdfast_home: Path, tmp_path: Path) -> None:
    """Appends continue after the server was killed and started again: none fails, and each is stored once."""
    port, folder = free_port(), tmp_path / "server"
    with ExitStack() as stack:
        address = stack.enter_context(postgres_server(folder, port, PASSWORD)).replace("@", f":{PASSWORD}@")
        async with postgres_rig(holdfast_home, address) as rig:
            case = Scenario(rig)
            lease = await case.started()
            said: list[int] = []

            async def work() -> None:
                while len(said) < 40:
                    said.extend(event.seq for event in await case.append(lease, case.result()))

            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(work)
                while len(said) < 10:
                    await anyio.lowlevel.checkpoint()
                await anyio.to_thread.run_sync(stack.close)
                await anyio.to_thread.run_sync(stack.enter_context, postgres_server(folder, port, PASSWORD))
            assert sorted(said) == list(range(3, 3 + len(said)))
            assert (await case.row()).head == 2 + len(said)
            await case.whole()


async def test_a_log_is_refused_before_anything_is_written(holdfast_home: Path, postgres: str) -> None:
    """Without tables, with older or newer ones, from another server, and without a way in."""
    folder = "log_refused"

    async def refused(address: str, *words: str, home: Path = holdfast_home) -> None:
        with pytest.raises(HoldfastError) as caught:
            async with await open_postgres(address, folder, home):
                pass
        for word in words:
            assert word in str(caught.value)
        assert PASSWORD not in str(caught.value)

    await refused(postgres, "has no log", "holdfast migrate")
    assert migrate(postgres, folder) == (0, TABLES)
    assert migrate(postgres, folder) == (TABLES, TABLES)
    async with await open_postgres(postgres, folder, holdfast_home):
        pass
    async with await open_postgres(postgres, folder, holdfast_home / "elsewhere"):
        pass
    with connect(postgres, folder) as sql:
        for version, word in ((TABLES + 1, "upgrade Holdfast"), (TABLES - 1, "holdfast migrate")):
            sql.execute("update meta set value = %s where name = 'schema'", (str(version),))
            await refused(postgres, f"version {version}", word)
        sql.execute("update meta set value = '99' where name = 'schema'")
        with pytest.raises(SchemaTooNew):
            migrate(postgres, folder)
        sql.execute("update meta set value = %s where name = 'schema'", (str(TABLES),))
    await refused(postgres.replace(PASSWORD, "wrong"), "cannot be reached", "password authentication failed")
    await refused(postgres.replace(f":{port_of(postgres)}", f":{free_port()}"), "cannot be reached")
    await refused(f"{postgres}?options=-csynchronous_commit%3Doff", "synchronous_commit")
    await refused("nonsense", "postgresql://")


LATER = """
drop function same_settings;
drop table places;
update meta set value = '7' where name = 'schema';
"""
"""Makes tables of version 7 of those of today."""

FORMER = f"""
{LATER}
drop function may_leave;
drop view living;
drop table workers, trees;
create table workers (
    worker_id text collate "C" primary key, place text collate "C" not null, beat_at timestamptz not null,
    ttl_s double precision not null
) with (fillfactor = 50);
insert into meta (name, value) values ('place', 'plc_first');
update meta set value = '6' where name = 'schema';
"""
"""Makes tables of version 6 of those of today."""

COLUMNS = """
select table_name, column_name, data_type, collation_name, is_nullable, column_default from information_schema.columns
where table_schema = current_schema() and table_name in ('workers', 'trees', 'living', 'places') order by 1, 2
"""


async def test_tables_of_the_version_before_are_migrated(holdfast_home: Path, postgres: str) -> None:
    """They get the shape of new ones, and all sessions stay with the home that had the log."""
    async with postgres_rig(holdfast_home, postgres) as rig:
        await Scenario(rig).open()
        with rig.sql() as sql:
            made = sql.execute(COLUMNS).fetchall()
            sql.execute(FORMER)
        await refuse(rig, holdfast_home)
        assert migrate(postgres, rig.folder) == (6, TABLES)
        with rig.sql() as sql:
            assert sql.execute(COLUMNS).fetchall() == made
            assert sql.execute("select * from trees").fetchall() == [("ses_a", "plc_first", False, False)]
            assert sql.execute("select count(*) from meta where name = 'place'").fetchone() == (0,)
        async with await open_postgres(postgres, rig.folder, holdfast_home) as store:
            assert await store.due(2**60) == []  # it waits for `plc_first`


async def test_tables_without_settings_get_them(holdfast_home: Path, postgres: str) -> None:
    async with postgres_rig(holdfast_home, postgres) as rig:
        await Scenario(rig).open()
        with rig.sql() as sql:
            made = sql.execute(COLUMNS).fetchall()
            sql.execute(LATER)
        await refuse(rig, holdfast_home, 7)
        assert migrate(postgres, rig.folder) == (7, TABLES)
        with rig.sql() as sql:
            assert sql.execute(COLUMNS).fetchall() == made
        async with await open_postgres(postgres, rig.folder, holdfast_home) as store:
            assert await store.due(2**60) == ["ses_a"]


async def refuse(rig: PostgresRig, home: Path, version: int = 6) -> None:
    with pytest.raises(LogUnavailable, match=rf"version {version}.*holdfast migrate"):
        await open_postgres(rig.address, rig.folder, home)


async def test_tables_from_another_server_are_numbered_again(holdfast_home: Path, postgres: str) -> None:
    """Positions that this server has yet to give out are refused, until a migration brings them before all new ones."""
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = Scenario(rig)
        lease = await case.started()
        with rig.sql() as sql:
            sql.execute("update events set position = position + (1::bigint << 60)")
        with pytest.raises(LogUnavailable, match="another server"):
            await open_postgres(postgres, rig.folder, holdfast_home)
        migrate(postgres, rig.folder)
        await case.append(lease, case.result())
        assert [seq_of(each) for each in await tail(rig)] == [("ses_a", 1), ("ses_a", 2), ("ses_a", 3)]
        async with another_store(rig):
            pass


async def test_a_worker_that_cannot_beat_takes_nothing(holdfast_home: Path, postgres: str) -> None:
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = Scenario(rig)
        await case.open()
        with rig.sql() as sql:
            sql.execute("alter table workers rename to elsewhere")
        with pytest.raises(LogUnavailable, match="lacks a table"):
            await case.take()
