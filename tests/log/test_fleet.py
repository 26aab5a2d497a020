"""Workers at several homes that serve one log, as processes (S5, S27); `bench/many.py` has the large forms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import anyio.to_thread
import pytest

from tests.log.elsewhere import There
from tests.log.fleet import Ears, fleet
from tests.log.rigs import postgres_rig
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address.replace("@", f":{PASSWORD}@")


async def test_a_worker_that_leaves_hands_its_sessions_over(holdfast_home: Path, postgres: str, tmp_path: Path) -> None:
    """At the end of one worker, that of another home begins all that it held, each once."""
    sessions = {f"ses_{number}" for number in range(4)}
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = There(rig)
        with fleet(rig.address, rig.folder, [tmp_path / "one"], limit=9, hold_s=PATIENCE_S) as (first,):
            ears = Ears([first])
            for session in sessions:
                await case.begin(session)
            assert {said.session for said in await anyio.to_thread.run_sync(ears.several, "took", 4)} == sessions
            with fleet(rig.address, rig.folder, [tmp_path / "two"], limit=9) as (second,):
                others = Ears([second])
                first.terminate()
                await anyio.to_thread.run_sync(ears.next, "left")
                took = await anyio.to_thread.run_sync(others.several, "took", 4)
    assert sorted((said.session, said.epoch) for said in took) == sorted((session, 2) for session in sessions)


async def test_of_many_workers_that_want_a_session_one_has_it(
    holdfast_home: Path, postgres: str, tmp_path: Path
) -> None:
    async with postgres_rig(holdfast_home, postgres) as rig:
        case = There(rig)
        await case.begin("ses_a")
        with fleet(rig.address, rig.folder, [tmp_path / "home"] * 3, limit=2) as children:
            ears = Ears(children)
            for number in range(5):
                await anyio.to_thread.run_sync(ears.next, "took")
                await until_parked(case)
                await case.say("ses_a", f"round{number}")
            await anyio.to_thread.run_sync(ears.next, "took")
            await until_parked(case)
        events = await case.store.read("ses_a")
    assert [event.epoch for event in events if event.type == "shift.started"] == [1, 2, 3, 4, 5, 6]
    assert all(later.type == "shift.started" for event, later in pairwise(events) if later.epoch > event.epoch)
    assert (ears.counts["fenced"], ears.counts["error"]) == (0, 0)


async def until_parked(case: There) -> None:
    token = 0
    while (await case.row("ses_a")).status != "parked":
        token = await case.store.changed(token)
