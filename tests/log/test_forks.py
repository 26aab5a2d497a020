"""Forks of sessions that lived through storms, at every kind of place: what they begin with is what was (S19, S22)."""

from __future__ import annotations

import contextlib
import random

import anyio
import pytest

from holdfast.facts.codec import Draft, genesis
from holdfast.facts.people import UserResume
from holdfast.facts.session import SessionForked, Workspace
from holdfast.kinds import KINDS
from holdfast.log.base import Post
from holdfast.log.memory import MemoryStore
from holdfast.log.verify import rebuild, verify
from holdfast.session.context.window import build, needed
from holdfast.session.decide import decide
from holdfast.session.fold import empty, fold
from holdfast.session.fold.hands import CARRIED, NOT_CARRIED
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow
from holdfast.session.state import State
from holdfast.sim.loop import Stuck, run
from holdfast.sim.storm import Storm
from holdfast.sim.world import World

CHANGED = frozenset(("window", "window_tokens", "pending", "unseen", "calls", "context"))
"""Carried, but the fork's first event adds to them."""


async def _fork(store: MemoryStore, origin: SessionRow, seq: int, fork_id: str) -> None:
    (event,) = await store.read(origin.session_id, after=seq - 1, limit=1)
    fact = SessionForked(
        origin=origin.session_id,
        origin_seq=seq,
        origin_hash=event.hash.hex(),
        goal=origin.goal,
        model=origin.model,
        workspace=Workspace("/fork", disposable=True),
        accounts=(fork_id, *origin.accounts[1:]),
        budget_pico=7,
        owner=origin.owner,
    )
    receipt = await store.post(Post(fork_id, "created", Draft(f"evt_{fork_id}", "user:ann", fact)), create=True)
    assert (receipt.seq, receipt.duplicate) == (seq + 1, False)


async def _check(store: MemoryStore, origin: SessionRow, seq: int, fork_id: str) -> None:
    prefix = await store.read(origin.session_id, prev=genesis(origin.session_id), limit=seq)
    expected = fold(empty(origin.session_id, KINDS), prefix)
    events = await store.read(fork_id, prev=genesis(fork_id))
    assert events[:seq] == prefix
    state = fold(empty(fork_id, KINDS), events[:seq])
    state.session_id = origin.session_id
    assert state == expected
    after = fold(empty(fork_id, KINDS), events)
    for name in CARRIED - CHANGED:
        had, has = getattr(expected, name), getattr(after, name)
        assert (has[: len(had)] if isinstance(has, list) else has) == had, name  # the clock may have been set back
    fresh = State(session_id=fork_id)
    for name in NOT_CARRIED:
        assert getattr(after, name) == getattr(fresh, name), name
    assert [item.seq for item in after.pending] == [*(item.seq for item in expected.pending), seq + 1]
    assert [call.end for call in after.calls] == [call.end or "cancelled" for call in expected.calls]
    assert [item.tokens >= 0 for item in after.window] == [True] * len(expected.window)
    bodies = {event.seq: event.fact for event in events}
    assert set(needed(after)) <= set(bodies)
    build(after, bodies, "prompt")
    await store.post(Post(fork_id, "go", Draft(f"evt_go_{fork_id}", "user:ann", UserResume())))
    going = fold(after, await store.read(fork_id, after=seq + 1, prev=events[-1].hash))
    assert going.ended is None
    decide(going, going.at_us)


async def _fork_all(store: MemoryStore, chance: random.Random) -> int:
    """Fork each session, its fork, and that one's fork, each anywhere."""
    rows = [row for row in await store.sessions() if row.session_id != HOME]
    for row in rows:
        origin = row
        for depth in range(3):
            seq = chance.randint(1, origin.head)
            fork_id = f"{row.session_id}_f{depth}"
            await _fork(store, origin, seq, fork_id)
            await _check(store, origin, seq, fork_id)
            origin = await store.find(fork_id)
    assert (await verify(store)).findings == ()
    assert await rebuild(store) == await store.beside()
    return 3 * len(rows)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(1_000, 1_200), marks=pytest.mark.faults)], ids=str)
def test_a_fork_is_its_origin_up_to_there(seeds: range) -> None:
    forks = 0
    for seed in seeds:
        world = World(seed)
        with contextlib.suppress(Stuck):  # what its sessions wrote is enough here
            run(world.loop, Storm(world).run())
        forks += anyio.run(_fork_all, world.store, random.Random(seed))
    assert forks >= 3 * len(seeds)
