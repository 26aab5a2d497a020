"""A home that earlier code wrote, with sessions resting in every way: today's code reads the same and wakes them."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.facts.shift import ShiftEnded
from holdfast.ids import system_entropy
from holdfast.kinds import KINDS
from holdfast.log.sqlite.store import SqliteStore
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.app.terminal import Type
from tests.brain.stage import Stage
from tests.golden.parked import folded

HOMES = sorted(Path(__file__).parents[1].glob("golden/home_*"))
WORDS = {"title", "text", "leads", "commands"}
"""Keys of a brief whose values are prose: later code may word them better."""


def facts(told: Any) -> Any:
    """Return a brief without its prose. A question was offered for approval once, and is for an answer now."""
    if isinstance(told, dict):
        return {key: facts(value) for key, value in told.items() if key not in WORDS}
    return [facts(each) for each in told] if isinstance(told, list) else "approve" if told == "answer" else told


def known(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return a state without the settings that its session and its items could not have yet; they must be empty.

    The number by which hands know the latest shift follows from its event, and came later too, as did the homes of the
    session, which are empty where one has the log.
    """
    assert now["fence"] >> 32 == (now["epoch"] if now["fence"] else 0)
    assert now["home_id"] == now["work_home"] == ""
    now = {name: value for name, value in now.items() if name not in ("fence", "home_id", "work_home")}
    asks = {name: as_before(ask, before["asks"][name]) for name, ask in now.get("asks", {}).items()}
    now = {**now, "asks": asks} if "asks" in now else now
    return {**now, "created": as_before(now["created"], before["created"])} if now["created"] else now


def as_before(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that there were before; others must be empty."""
    later = {name: value for name, value in now.items() if name not in before}
    assert not any(later.values()), later
    return {name: now[name] for name in before}


@pytest.fixture(params=HOMES, ids=lambda home: home.name)
def old_home(request: pytest.FixtureRequest, holdfast_home: Path) -> dict[str, Any]:
    """Puts the old home in place of this test's home. Returns what the code that wrote it read in it."""
    holdfast_home.mkdir(mode=0o700, exist_ok=True)
    database = holdfast_home / "holdfast.db"
    database.write_bytes(lzma.decompress((request.param / "home.db.xz").read_bytes()))
    database.chmod(0o600)
    expected: dict[str, Any] = json.loads(lzma.decompress((request.param / "expected.json.xz").read_bytes()))
    return expected


def test_reads_the_same(old_home: dict[str, Any], holdfast_home: Path, type: Type) -> None:
    assert type("verify").code == 0
    states = json.loads(json.dumps(anyio.run(folded, holdfast_home / "holdfast.db")))
    assert states.keys() == old_home["states"].keys()
    assert {name: known(now, old_home["states"][name]) for name, now in states.items()} == old_home["states"]
    assert len(states) > 100


def test_briefs_keep_their_facts(old_home: dict[str, Any], type: Type) -> None:
    for session_id, before in old_home["briefs"].items():
        now = json.loads(type("brief", session_id, "--json").out)
        assert facts(now) == facts(before)


def test_wakes_every_agent(old_home: dict[str, Any], holdfast_home: Path, type: Type) -> None:
    ends = anyio.run(wake_all, holdfast_home / "holdfast.db")
    assert all(end is not None and end.status in ("done", "parked") for end in ends.values()), ends
    assert sum(end.status == "done" for end in ends.values() if end) > len(ends) / 2 > 10
    assert type("verify").code == 0


async def wake_all(database: Path) -> dict[str, ShiftEnded | None]:
    """Send every agent without a parent a message, wake it with a model that is done, and return the shifts' ends."""
    ends = {}
    clock = SystemClock()
    async with await SqliteStore.open(database, workers=database.parent / "workers", clock=clock) as store:
        intake = Intake(store, store, clock, system_entropy, Caller("user:test"))
        free = {"input_per_mtok": 0.0, "output_per_mtok": 0.0}
        doors = replace(Stage([], price=free).doors, log=store, leases=store, snapshots=store)
        for row in await store.sessions():
            state, _ = await recall(row.session_id, store, store, KINDS)
            if row.parent or state.tenant.kind.name != "agent" or row.status in ("failed", "cancelled"):
                continue
            await intake.send(row, "Go on.")
            ends[row.session_id] = (await wake(row.session_id, doors)).ended
    return ends
