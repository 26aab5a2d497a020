"""Wakes that fail: twice at one event in the same way, and the session parks instead of asking the model for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.brain.doors import NoObserver, ObserverGone
from holdfast.errors import HandsError, SandboxUnavailable, SecretUnavailable, UsageError
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned, HandsReleased
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.session import SessionError
from holdfast.facts.shift import ShiftEnded
from holdfast.hands.base import Hands
from holdfast.model.base import ModelRequest, StreamPart
from tests.brain.stage import Stage, turn
from tests.fleet.clock import ManualClock, settle
from tests.fleet.served import served

PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}

DEFECTS: list[Callable[[], Exception]] = [
    lambda: RecursionError("maximum recursion depth exceeded"),
    lambda: AssertionError("nobody does that"),
    lambda: KeyError("call_1"),
    lambda: ZeroDivisionError(),
    lambda: UsageError("a fact cannot be stored"),
    lambda: SecretUnavailable("the secret is not there"),
]


class Failing(Stage):
    """A session whose model is asked, and whose wake then fails as `defects` say, one for each request."""

    def __init__(self, *defects: Callable[[], Exception] | None, **more: Any) -> None:
        super().__init__([turn("ok")], price=PRICE, **more)
        self.defects = list(defects)
        inner, left = self.model.inner, self.defects

        class Fails:
            name = inner.name
            worst_case_pico, cost_pico = inner.worst_case_pico, inner.cost_pico

            async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
                async for part in inner.stream(request):
                    yield part
                    if left and (defect := left.pop(0)) is not None:
                        raise defect()

        self.model.inner = Fails()

    async def asked(self) -> int:
        """How often the model was asked."""
        return len(await self.facts(ModelRequestStart))

    async def held(self) -> int:
        """Money that is reserved."""
        return sum(account.reserved_pico for account in await self.store.accounts())


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: type(defect()).__name__)
async def test_the_second_failure_of_a_kind_parks_the_session_and_a_person_wakes_it(
    defect: Callable[[], Exception],
) -> None:
    stage = Failing(*[defect] * 3)
    await stage.open()
    kind = type(defect())
    with pytest.raises(kind):
        await stage.wake()
    (first,) = await stage.facts(SessionError)
    assert (first.kind, first.at_seq) == (kind.__name__, 1)
    ended = (await stage.wake()).ended
    assert ended is not None
    assert (ended.status, ended.reason, ended.due_us) == ("parked", "person", None)
    assert "failed twice in the same way at event 1" in ended.detail
    assert (await stage.asked(), await stage.held()) == (2, 0)
    assert (await stage.wake()).idle
    assert await stage.asked() == 2
    await stage.post("resume")
    with pytest.raises(kind):
        await stage.wake()
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "done"
    assert await stage.asked() == 4


@pytest.mark.parametrize("trouble", [None, HandsError("not now"), ValueError("a defect here too")])
async def test_a_session_that_parks_for_its_failures_gives_its_hands_back(trouble: Exception | None) -> None:
    stage = Stage([turn("", ("bash", {"command": "true"})), turn("ok")])
    attach = stage.hands.attach

    async def release(epoch: int) -> None:
        assert trouble is not None
        raise trouble

    async def attached(identity: HandsProvisioned) -> Hands:
        hands = await attach(identity)
        if trouble is not None:
            hands.release = release  # type: ignore[method-assign]
        return hands

    async def fails(part: StreamPart) -> None:
        if len(stage.model.requests) > 1:
            raise RecursionError

    stage.hands.attach, stage.model.on_part = attached, fails  # type: ignore[method-assign]
    await stage.open()
    with pytest.raises(RecursionError):
        await stage.wake()
    assert len(stage.hands.alive()) == 1
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "parked"
    assert len(stage.hands.alive()) == (trouble is not None)
    assert len(await stage.facts(HandsReleased)) == (trouble is None)


async def test_failures_of_different_kinds_come_to_an_end_too() -> None:
    one, other = DEFECTS[0], DEFECTS[1]
    stage = Failing(*[one, other] * 5)
    await stage.open()
    for defect in (one, other, one):
        with pytest.raises(type(defect())):
            await stage.wake()
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "parked"
    assert await stage.asked() == 4


async def test_work_between_two_failures_is_no_breaker() -> None:
    stage = Failing(DEFECTS[0], None, None, None, DEFECTS[0])
    await stage.open()
    with pytest.raises(RecursionError):
        await stage.wake()
    await stage.post("send", "go on")
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "done"


@pytest.mark.parametrize("error", [SandboxUnavailable("no user namespaces"), HandsError("no hands today")])
async def test_what_may_mend_itself_and_costs_nothing_parks_nothing(error: Exception) -> None:
    class None_:
        name = "none"

        async def provision(self, *words: Any, **more: Any) -> Any:
            raise error

    stage = Stage([turn("I build.", ("bash", {"command": "make"})), turn("ok")])
    hands, stage.doors = stage.doors.hands, replace(stage.doors, hands=None_())  # type: ignore[arg-type]
    await stage.open()
    for _ in range(5):
        with pytest.raises(type(error)):
            await stage.wake()
    stage.doors = replace(stage.doors, hands=hands)
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "done"
    assert len(await stage.facts(ModelRequestStart)) == 2


async def test_a_worker_pays_twice_and_no_more() -> None:
    clock = ManualClock()
    stage = Failing(*[DEFECTS[4]] * 50, clock=clock)
    await stage.open()

    async def handle(session_id: str) -> None:
        await stage.wake()

    async with served(stage, clock, handler=handle):
        await settle()
        for _ in range(20):
            await clock.pass_(400)
            await settle()
    assert await stage.asked() == 2
    assert [fact.status for fact in await stage.facts(ShiftEnded)] == ["released", "parked"]


async def test_a_watcher_that_leaves_says_nothing_about_the_session() -> None:
    class Leaves(NoObserver):
        def on_events(self, events: list[Event]) -> None:
            raise ObserverGone

    stage = Stage([turn("ok")])
    watched, stage.doors = stage.doors, replace(stage.doors, observer=Leaves())
    await stage.open()
    for _ in range(4):
        with pytest.raises(ObserverGone):
            await stage.wake()
    stage.doors = watched
    ended = (await stage.wake()).ended
    assert ended is not None
    assert ended.status == "done"
    assert await stage.facts(SessionError) == []
