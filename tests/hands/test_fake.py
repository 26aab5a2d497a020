"""What hands in memory add to the kit: pace, deaths at a moment, a clock of the caller's."""

from __future__ import annotations

import math

import anyio
import pytest

from holdfast.errors import HandsLost
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, Hands, HandsSpec
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider, Pace
from holdfast.testing.hands import bash, job, run, service, tool


class HandClock:
    """A clock that moves only when it is told to, or when all sleep."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._sleepers: list[tuple[float, anyio.Event]] = []

    def now_us(self) -> int:
        return int(self.now_s * 1e6)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        self._sleepers.append((self.now_s + seconds, event))
        await event.wait()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for due_s, event in self._sleepers:
            if due_s <= self.now_s:
                event.set()


def mark(command: str, files: Files) -> tuple[int, str]:
    files["/workspace/marks"] = files.get("/workspace/marks", b"") + b"x"
    return 0, "marked\n"


def steady(call_id: str, request: ExecRequest) -> tuple[float, float]:
    return 2.0, 3.0


async def made(clock: HandClock, pace: Pace = steady) -> tuple[FakeProvider, Hands, Files]:
    provider = FakeProvider(clock, effect=mark, pace=pace)
    hands = await provider.provision(HandsSpec("s", "hnd_1", Workspace("/w")), 1)
    return provider, hands, provider.files("/w")


async def test_effect_and_end_have_their_moments() -> None:
    clock = HandClock()
    _, hands, files = await made(clock)
    await hands.start(1, "1.0", bash("go"))
    clock.advance(1.9)
    assert (await hands.status(1, "1.0")).state == "running"
    assert "/workspace/marks" not in files
    clock.advance(0.2)
    assert (await hands.status(1, "1.0")).state == "running"
    assert files["/workspace/marks"] == b"x"
    clock.advance(3.0)
    status = await hands.status(1, "1.0")
    assert status.state == "finished"
    assert status.result is not None
    assert status.result.output == "marked\n"


@pytest.mark.parametrize(("after_s", "marks"), [(1.0, b""), (4.0, b"x")])
async def test_a_death_before_or_after_the_effect_is_unknown_alike(after_s: float, marks: bytes) -> None:
    clock = HandClock()
    provider, hands, files = await made(clock)
    await hands.start(1, "1.0", bash("go"))
    clock.advance(after_s)
    provider.lose("hnd_1")
    clock.advance(100)
    provider.settle()
    assert (await hands.status(1, "1.0")).state == "unknown"
    assert (await hands.status(1, "2.0")).state == "never_started"
    assert files.get("/workspace/marks", b"") == marks
    assert provider.alive() == []


async def test_a_write_that_died_can_be_probed() -> None:
    clock = HandClock()
    provider, hands, files = await made(clock)
    await hands.start(1, "1.0", tool("write", file_path="f", content="new"))
    provider.lose("hnd_1")
    expectation = (await hands.status(1, "1.0")).expectation
    assert expectation is not None
    assert (expectation.path, expectation.before) == ("/workspace/f", "")
    assert files.get("/workspace/f") is None


async def test_the_time_limit_counts_on_the_same_clock() -> None:
    clock = HandClock()
    _, hands, files = await made(clock)
    await hands.start(1, "1.0", bash("go", timeout_s=1.0))
    clock.advance(50)
    result = await hands.wait(1, "1.0")
    assert result.timed_out
    assert "/workspace/marks" not in files


async def test_who_waits_is_woken_by_end_and_by_death() -> None:
    clock = HandClock()
    provider, hands, _ = await made(clock)
    heard: list[str] = []

    async def wait(call_id: str) -> None:
        try:
            heard.append((await hands.wait(1, call_id)).output)
        except HandsLost as lost:
            heard.append(str(lost))

    for call_id in ("1.0", "2.0"):
        await hands.start(1, call_id, bash("go"))
        async with anyio.create_task_group() as group:
            group.start_soon(wait, call_id)
            await anyio.wait_all_tasks_blocked()
            assert len(heard) == int(call_id[0]) - 1
            if call_id == "1.0":
                clock.advance(6)
            else:
                provider.lose("hnd_1")
    assert heard == ["marked\n", "the hands hnd_1 are gone: it was killed"]


async def test_a_reboot_makes_every_journal_worthless() -> None:
    clock = HandClock()
    provider, hands, _ = await made(clock, lambda call_id, request: (0.0, 0.0))
    await run(hands, "1.0", bash("go"))
    provider.reboot("boot-2")
    assert (await hands.status(1, "1.0")).state == "unknown"
    again = await provider.provision(HandsSpec("s", "hnd_2", Workspace("/w")), 2)
    assert (await run(again, "1.0", tool("read", file_path="marks"), 2)).output == "     1\tx"


async def test_files_outlive_hands() -> None:
    clock = HandClock()
    provider, hands, _ = await made(clock, lambda call_id, request: (0.0, 0.0))
    await run(hands, "1.0", tool("write", file_path="f", content="kept"))
    await hands.release(1)
    assert provider.files("/w")["/workspace/f"] == b"kept"


async def test_a_job_takes_hours_and_its_end_is_told_at_its_time() -> None:
    clock = HandClock()
    told: list[tuple[str, str, str, float]] = []
    provider = FakeProvider(
        clock,
        effect=lambda command, files: (0, "warm\nloss 0.1\n"),
        pace=lambda call_id, request: (600.0, 7200.0),
        on_news=lambda session, call, news: told.append((session, call, news, clock.now_s)),
    )
    hands = await provider.provision(HandsSpec("ses_1", "hnd_1", Workspace("/w")), 1)
    await hands.start(1, "1.0", job("train", 86_400.0, line=r"^loss"))
    assert provider.next_due() == 600.0
    clock.advance(provider.next_due())
    provider.settle()
    assert told == [("ses_1", "1.0", "line", 700.0)]
    assert (await hands.status(1, "1.0")).line == "loss 0.1"
    assert (await hands.read(1, "1.0")).text == "warm\nloss 0.1\n"
    clock.advance(provider.next_due())
    provider.settle()
    assert told[1:] == [("ses_1", "1.0", "exit", 7900.0)]
    result = (await hands.status(1, "1.0")).result
    assert result is not None
    assert result.duration_ms == 7_800_000.0
    await hands.start(1, "2.0", job("train", 100.0))
    clock.advance(100)
    provider.settle()
    assert (await hands.wait(1, "2.0")).timed_out
    assert told[2:] == [("ses_1", "2.0", "exit", 8000.0)]


async def test_a_pause_moves_all_that_is_due() -> None:
    clock = HandClock()
    provider, hands, files = await made(clock)
    await hands.start(1, "1.0", bash("go", timeout_s=10.0))
    clock.advance(1)
    await hands.pause(1)
    assert provider.next_due() == math.inf
    clock.advance(1000)
    assert (await hands.status(1, "1.0")).state == "running"
    assert "/workspace/marks" not in files
    await hands.resume(1)
    assert provider.next_due() == 1.0
    clock.advance(4)
    assert (await hands.wait(1, "1.0")).ok


@pytest.mark.parametrize("end", ["lose", "reboot"])
async def test_what_ends_with_its_machine_is_not_known(end: str) -> None:
    clock = HandClock()
    told: list[tuple[str, str, str]] = []
    provider = FakeProvider(clock, pace=steady, on_news=lambda *news: told.append(news))
    hands = await provider.provision(HandsSpec("ses_1", "hnd_1", Workspace("/w")), 1)
    await hands.start(1, "1.0", job("train", 100.0))
    await hands.start(1, "1.1", bash("go"))
    if end == "lose":
        provider.lose("hnd_1")
        assert told == [("ses_1", "1.0", "lost")]
    else:
        provider.reboot("boot-2")
        assert told == [], "nobody is left to tell it"
    assert (await hands.status(1, "1.0")).state == "unknown"


async def test_a_service_is_well_when_its_health_command_is() -> None:
    clock = HandClock()

    def effect(command: str, files: Files) -> tuple[int, str]:
        return (0, "") if command == "serve" or clock.now_s >= 104.5 else (1, "not yet\n")

    provider = FakeProvider(clock, effect=effect, pace=lambda call_id, request: (1.0, 0.0))
    hands = await provider.provision(HandsSpec("s", "hnd_1", Workspace("/w")), 1)
    await hands.start(1, "1.0", service("web", "serve", health="ask", ready_s=30.0))
    await hands.start(1, "1.1", service("hasty", "serve", health="ask", ready_s=2.5))
    ready = []
    for _ in range(6):
        clock.advance(1)
        ready.append([(await hands.status(1, call_id)).ready for call_id in ("1.0", "1.1")])
    assert [first for first, _ in ready] == ["waiting"] * 4 + ["yes"] * 2
    assert [second for _, second in ready] == ["waiting"] * 2 + ["no"] * 4
    clock.advance(10**6)
    assert (await hands.status(1, "1.0")).state == "running"
