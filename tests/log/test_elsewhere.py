"""Leases among places, whose processes cannot see each other's locks: they expire by the clock of the database (S5)."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from holdfast.errors import LeaseHeld, LogUnavailable
from holdfast.facts.codec import SCHEMA
from holdfast.log.postgres import store as store_module
from holdfast.log.postgres.connect import FOLDER, PostgresDatabase, connect
from holdfast.log.postgres.migrate import check, migrate, take_over
from holdfast.log.postgres.places import Place
from tests.log.elsewhere import TTL_S, There, at, holder, store_of
from tests.log.processes import line, tell
from tests.log.rigs import PostgresRig, open_postgres, port_of, postgres_rig
from tests.support.commit_proxy import Way, commit_proxy
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.real

WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'insert into trees'"
PASSWORD = "T0PS3CRET"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address.replace("@", f":{PASSWORD}@")


@pytest.fixture
async def rig(postgres: str, holdfast_home: Path) -> AsyncIterator[PostgresRig]:
    async with postgres_rig(holdfast_home, postgres) as rig:
        yield rig


async def taken_over(case: There) -> float:
    """Take `ses_a` as soon as its holder counts as dead; the time that this took, in seconds."""
    began_s = time.monotonic()
    worker = case.rig.worker()
    while True:
        try:
            await case.store.acquire("ses_a", case.shift(worker))
            return time.monotonic() - began_s
        except LeaseHeld:
            await anyio.sleep(0.02)


async def test_a_worker_elsewhere_lives_as_long_as_it_beats(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case:
        await case.begin("ses_a")
        with holder(rig, tmp_path / "there", TTL_S) as child:
            until_s = time.monotonic() + 2 * TTL_S
            while time.monotonic() < until_s:
                assert "ses_a" in await case.store.holders()
                assert await case.store.due(2**60) == []
                await anyio.sleep(TTL_S / 10)
            child.kill()
            await taken_over(case)
        assert list(await case.store.holders()) == ["ses_a"]


async def test_a_stopped_worker_loses_its_lease_and_learns_it(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case:
        await case.begin("ses_a")
        with holder(rig, tmp_path / "there", TTL_S) as child:
            child.send_signal(signal.SIGSTOP)
            assert await taken_over(case) > TTL_S / 2
            tell(child, "act")
            child.send_signal(signal.SIGCONT)
            assert line(child) == ["Fenced"]
            tell(child, "record")
            assert line(child) == ["Fenced"]
            tell(child, "take")
            assert line(child) == ["LeaseHeld"]


async def test_what_cannot_travel_waits_for_its_place_until_that_is_lost(rig: PostgresRig, tmp_path: Path) -> None:
    """A session in a folder of its user, or without an object store, is taken over by a decision of a user only."""
    there, here = "plc_there", "plc_here"
    async with at(rig, tmp_path / "here") as case, at(rig, tmp_path / "there") as other:
        await other.begin("ses_a", own=False)
        assert await case.store.due(2**60) == []
        assert await other.store.due(2**60) == ["ses_a"]
        with pytest.raises(LeaseHeld, match=r"its workspace at another home .*--take-over"):
            await case.take()
        with holder(rig, tmp_path / "there", TTL_S) as child:
            with pytest.raises(LeaseHeld, match="is running under"):
                await case.take()
            with pytest.raises(LogUnavailable, match="lives, or lived some seconds ago"):
                take_over(rig.address, here, there, rig.folder)
            child.send_signal(signal.SIGSTOP)
            await anyio.to_thread.run_sync(until, lambda: moved(rig, here) == (there, 1))
            assert moved(rig, here) == ("", 0)
            assert await case.store.due(2**60) == ["ses_a"]
            await case.store.release(await case.take())
            child.send_signal(signal.SIGCONT)
            tell(child, "act")
            assert await says(child) == ["Fenced"]
            tell(child, "take")  # the machine was not lost after all
            assert await says(child) == ["LeaseHeld"]


def moved(rig: PostgresRig, here: str) -> tuple[str, int]:
    """What a take-over moves now."""
    try:
        return take_over(rig.address, here, "", rig.folder)
    except LogUnavailable:
        return "", -1


async def test_a_take_over_names_the_places_that_may_be_lost(rig: PostgresRig, tmp_path: Path) -> None:
    for name in ("one", "two"):
        async with at(rig, tmp_path / name) as case:
            await case.begin(f"ses_{name}", own=False)
    with pytest.raises(LogUnavailable, match=r"several homes .*plc_one, plc_two.*--lost plc_one"):
        take_over(rig.address, "plc_here", "", rig.folder)
    assert take_over(rig.address, "plc_here", "plc_two", rig.folder) == ("plc_two", 1)
    assert take_over(rig.address, "plc_here", "", rig.folder) == ("plc_one", 1)


async def test_a_tree_stays_together_while_its_place_lives(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case, at(rig, tmp_path / "there") as other:
        await other.begin("ses_a")
        assert await case.store.due(2**60) == ["ses_a"]  # nobody has begun it, so anybody can
        await other.take()
        await other.begin("ses_b", above="ses_a")
        assert await case.store.due(2**60) == []
        assert await other.store.due(2**60) == ["ses_b"]
        with pytest.raises(LeaseHeld, match="whose worker"):
            await case.take("ses_b")
        fleet = await store_of(case).fleet()
        assert [(row.place, row.capacity, row.holds) for row in fleet] == [("plc_here", 0, 0), ("plc_there", 0, 1)]
        stores = (store_of(case), store_of(other))
        assert [await store.is_elsewhere("ses_a") for store in stores] == [True, False]
        assert [await store.is_served("ses_a") for store in stores] == [False, False]  # by commands only
        await store_of(case).enroll("wrk_case", 4)
        assert [await store_of(case).is_served(name) for name in ("ses_a", "")] == [False, True]
        await store_of(other).enroll("wrk_other", 4)
        assert await store_of(case).is_served("ses_a")
        await store_of(other).close()
        assert await case.store.due(2**60) == ["ses_a", "ses_b"]
        await case.take("ses_b")


async def test_trees_that_two_places_take_at_once_are_at_one_of_them(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case, at(rig, tmp_path / "there") as other:
        for number in range(20):
            await case.begin(f"ses_{number}")
            await case.begin(f"ses_{number}_child", above=f"ses_{number}")
        took: dict[str, set[str]] = {}

        async def take(at: There, name: str, session_id: str) -> None:
            with suppress(LeaseHeld):
                await at.take(session_id)
                took.setdefault(session_id.removesuffix("_child"), set()).add(name)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(take, case, "here", f"ses_{number}")
                group.start_soon(take, other, "there", f"ses_{number}_child")
        assert {len(names) for names in took.values()} == {1}
        assert len(took) == 20


async def test_a_take_that_waits_for_another_sees_the_worker_that_began_meanwhile(
    rig: PostgresRig, tmp_path: Path
) -> None:
    """It was sent before that worker had a row, and waits for the row of the tree."""
    with connect(rig.address, rig.folder) as takes, connect(rig.address, rig.folder) as beats:
        async with at(rig, tmp_path / "there") as other:
            await other.begin("ses_a")

            async def take() -> None:
                with pytest.raises(LeaseHeld, match="whose worker wrk_here"):
                    await other.take()

            def waits() -> bool:
                return bool(beats.execute(WAITING).fetchall())

            async with anyio.create_task_group() as group:
                takes.execute("begin")
                takes.execute("update trees set place = 'plc_here', keeps = true")
                group.start_soon(take)
                await anyio.to_thread.run_sync(until, waits)
                beat = Place("plc_here", "here").beat(["wrk_here"], [1], 60.0)
                PostgresDatabase(beats).run("beat", beat)
                takes.execute("commit")


async def test_a_worker_never_begins_what_a_newer_program_wrote(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case:
        await case.begin("ses_a")
        with connect(rig.address, rig.folder) as connection:
            connection.execute(f"update sessions set vocabulary = {SCHEMA + 1}")
        assert await case.store.due(2**60) == []


async def test_a_copied_home_is_refused_while_the_other_one_works(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case:
        await store_of(case).enroll("wrk_1", 4)
        with pytest.raises(LogUnavailable, match=r"is its copy.*workers/place"):
            check(rig.address, Place("plc_here", "another boot"), rig.folder)
        check(rig.address, Place("plc_other", "another boot"), rig.folder)


async def says(child: subprocess.Popen[str]) -> list[str]:
    return await anyio.to_thread.run_sync(line, child)


async def test_a_worker_that_hangs_counts_as_dead(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as case:
        await case.begin("ses_a")
        with holder(rig, tmp_path / "there", TTL_S) as child:
            tell(child, "hang")
            await taken_over(case)
            assert await says(child) == ["hung"]
            tell(child, "act")
            assert await says(child) == ["Fenced"]


@contextmanager
def parted(rig: PostgresRig, *ways: Way) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """An address of the rig's server over a network, and functions that part it and join it again."""
    port = port_of(rig.address)
    with commit_proxy(port) as proxy:
        yield rig.address.replace(f":{port}/", f":{proxy.port}/"), partial(proxy.part, *ways), proxy.join
        proxy.join()


async def test_a_worker_without_the_database_begins_nothing(rig: PostgresRig, tmp_path: Path) -> None:
    """Parted from the database, its session is taken over, and then it learns that."""
    with parted(rig, "there", "back") as (through, part, join):
        async with at(rig, tmp_path / "here") as case:
            await case.begin("ses_a")
            with holder(rig, tmp_path / "there", TTL_S, through) as child:
                part()
                assert await taken_over(case) < TTL_S + 2.0
                tell(child, "act")
                head = (await case.row()).head
                join()
                assert await says(child) == ["Fenced"]
                assert (await case.row()).head == head


async def test_a_worker_that_hears_nothing_waits(rig: PostgresRig, tmp_path: Path) -> None:
    """What it sends arrives, and it begins nothing until it hears that it does."""
    with parted(rig, "back") as (through, part, join):
        async with at(rig, tmp_path / "here") as case:
            await case.begin("ses_a")
            with holder(rig, tmp_path / "there", TTL_S, through) as child:
                part()
                await anyio.sleep(TTL_S)
                tell(child, "act")
                await anyio.sleep(TTL_S / 4)
                assert (await case.row()).head == 2
                join()
                assert await says(child) == ["act", "3"]


async def test_who_lost_the_database_takes_nothing_at_once(rig: PostgresRig, tmp_path: Path) -> None:
    """Both workers lost it; the one that is back first does not take the session of the other."""
    with parted(rig, "there", "back") as (through, part, join):
        mine = PostgresRig(through, rig.folder, rig.home, rig.store)
        async with at(mine, tmp_path / "here") as case:
            await case.open("ses_b")
            await case.begin("ses_a")
            await case.take("ses_b")
            with holder(rig, tmp_path / "there", TTL_S, through) as child:
                child.send_signal(signal.SIGSTOP)  # none of its beats is on the way
                part()
                await anyio.sleep(2 * TTL_S)
                join()
                with pytest.raises(LeaseHeld):
                    await case.take()
                child.send_signal(signal.SIGCONT)
                tell(child, "act")
                assert (await says(child))[0] == "act"


async def test_nobody_is_dead_when_the_database_starts(tmp_path: Path, holdfast_home: Path) -> None:
    """Workers could not beat while it was away; they keep their sessions if they beat again soon."""
    folder, port = tmp_path / "postgres", free_port()
    with ExitStack() as running:
        address = running.enter_context(postgres_server(folder, port, PASSWORD)).replace("@", f":{PASSWORD}@")
        migrate(address)
        rig = PostgresRig(address, FOLDER, holdfast_home, await open_postgres(address, FOLDER, holdfast_home))
        async with at(rig, tmp_path / "here") as case:
            await case.begin("ses_a")
            with holder(rig, tmp_path / "there", TTL_S) as child:
                running.pop_all().close()
                await anyio.sleep(2 * TTL_S)
                running.enter_context(postgres_server(folder, port, PASSWORD))
                with pytest.raises(LeaseHeld):
                    await case.take()
                tell(child, "act")
                assert (await says(child))[0] == "act"
        await rig.store.close()


async def test_the_bell_is_heard_before_the_next_look(
    rig: PostgresRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process elsewhere learns at once that a session became due, and that its holder let it go."""
    monkeypatch.setattr(store_module, "POLL_S", 100.0)
    async with at(rig, tmp_path / "here") as case:
        token = 0
        while token < 2:  # the second one is the first look of the thread that listens
            token = await store_of(case).changed(token)
        async with at(rig, tmp_path / "there") as other:
            with anyio.fail_after(PATIENCE_S):
                await other.begin("ses_a")
                token = await store_of(case).changed(token)
                assert await case.store.due(2**60) == ["ses_a"]
                lease = await other.take()
                await other.store.release(lease)
                while "ses_a" not in await other.store.due(2**60) or (await case.store.find("ses_a")).holder:
                    token = await store_of(case).changed(token)
