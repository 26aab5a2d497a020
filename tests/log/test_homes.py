"""Homes that share a log: settings that differ, silences, and what a failover lost (S5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from holdfast.errors import Fenced, LeaseHeld
from holdfast.log.postgres.migrate import take_over
from holdfast.log.pulse import Pulse
from tests.log.elsewhere import at, store_of
from tests.log.rigs import PostgresRig, postgres_rig
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import until

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address.replace("@", f":{PASSWORD}@")


@pytest.fixture
async def rig(postgres: str, holdfast_home: Path) -> AsyncIterator[PostgresRig]:
    async with postgres_rig(holdfast_home, postgres) as rig:
        yield rig


async def test_a_home_with_other_settings_does_not_continue_sessions(rig: PostgresRig, tmp_path: Path) -> None:
    """The settings of a home are those of its latest worker; the error and `other_settings` name what differs."""
    mine, others = '{"prompt worker":"a","secret x":""}', '{"price m":"p","prompt worker":"b","secret x":""}'
    async with at(rig, tmp_path / "there", mine) as other:
        await store_of(other).enroll("wrk_there", 4)
        for name in ("ses_a", "ses_b"):
            await other.begin(name)
        await other.store.release(await other.take())
    async with at(rig, tmp_path / "here", others) as case:
        assert await case.store.due(2**60) == ["ses_b"]  # nobody has begun it
        assert await store_of(case).is_elsewhere("ses_a")
        with pytest.raises(LeaseHeld, match=r"some settings differ here \(price m, prompt worker\)"):
            await case.take()
        assert await store_of(case).other_settings() == {"plc_there": ["price m", "prompt worker"]}
        await store_of(case).enroll("wrk_here", 4)
        assert not await store_of(case).is_served("ses_a")
        async with at(rig, tmp_path / "there", others) as other:
            await store_of(other).enroll("wrk_there", 4)
        assert await store_of(case).other_settings() == {}
        await case.store.release(await case.take())


async def test_a_user_decides_that_settings_may_differ(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "there", '{"price m":"p"}') as other:
        await store_of(other).enroll("wrk_there", 4)
        await other.begin("ses_a")
        await other.store.release(await other.take())
    async with at(rig, tmp_path / "here") as case:
        assert await case.store.due(2**60) == []
        assert take_over(rig.address, "plc_here", "", rig.folder) == ("plc_there", 1)
        assert await case.store.due(2**60) == ["ses_a"]


async def test_homes_tell_each_other_of_a_model_that_is_out(rig: PostgresRig, tmp_path: Path) -> None:
    async with at(rig, tmp_path / "here") as here, at(rig, tmp_path / "there") as there:
        one, other = store_of(here), store_of(there)
        assert await other.outage("m") is None
        await one.tell_outage("m", '{"kind": "rate_limited"}', 60_000_000)
        says, wait_us = await other.outage("m") or ("", 0)
        assert says == '{"kind": "rate_limited"}'
        assert 50_000_000 < wait_us <= 60_000_000
        await other.tell_outage("m", "later", -1)
        says, wait_us = await one.outage("m") or ("", 0)
        assert says == "later"
        assert wait_us < 0
        assert await one.outage("n") is None
        await one.tell_outage("m", "", 0)
        assert await other.outage("m") is None


async def test_an_answer_from_before_a_silence_confirms_nothing(rig: PostgresRig, tmp_path: Path) -> None:
    """A process that was stopped after a commit takes in its answer later: the lease may be another one's by then."""
    async with at(rig, tmp_path / "here") as case:
        await case.begin("ses_a")
        lease = await case.take()
        store = store_of(case)
        await case.append(lease, case.result())
        await store.confirm(lease)
        await case.take(steal=True)
        store._beats._pulse.lapses += 1
        await anyio.to_thread.run_sync(until, store._beats.is_fresh)
        with pytest.raises(Fenced):
            await store.confirm(lease)


def test_a_beat_after_a_silence_is_a_lapse() -> None:
    pulse = Pulse(8.0)
    pulse.enroll("wrk_a", 100.0, 1)
    pulse.acknowledged({"wrk_a": 1}, 100.0, 100.1)
    pulse.acknowledged({"wrk_a": 1}, 102.0, 105.9)
    assert pulse.lapses == 1  # the first beat
    pulse.acknowledged({"wrk_a": 1}, 107.0, 108.1)
    assert pulse.lapses == 2
    assert pulse.is_fresh(112.9)
    assert not pulse.is_fresh(113.0)
    assert not pulse.is_wary(115.0)
    assert pulse.is_wary(115.1)  # not yet back, or back without knowing
    pulse.acknowledged({"wrk_a": 1}, 120.0, 121.0)
    assert pulse.is_wary(128.9)
    pulse.acknowledged({"wrk_a": 1}, 128.0, 128.1)
    assert not pulse.is_wary(129.0)
    assert not Pulse(8.0).is_wary(1_000.0)  # it knows of no silence


async def test_a_session_whose_end_was_lost_goes_on(rig: PostgresRig, tmp_path: Path) -> None:
    """After a failover that lost commits, a row may name a worker that lives and does not run the session."""
    async with at(rig, tmp_path / "here") as case, at(rig, tmp_path / "there") as other:
        await case.begin("ses_a")
        worker = case.rig.worker()
        lease = await case.take(worker=worker)
        with rig.sql() as sql:
            sql.execute("create table kept as select * from sessions")
            await case.append(lease, case.parked("person"))
            await case.store.release(lease)
            sql.execute("delete from events using kept where kept.session_id = events.session_id and seq > kept.head")
            sql.execute("delete from sessions")
            sql.execute("insert into sessions select * from kept")
        assert await other.store.due(2**60) == []
        assert await case.store.due(2**60) == ["ses_a"]
        again = await case.take(worker=worker)
        assert again.epoch == lease.epoch + 1
        assert await case.store.due(2**60) == []
        await case.refused(LeaseHeld, case.take(worker=worker), "ses_a")
