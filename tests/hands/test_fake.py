"""What hands in memory add to the kit: pace, deaths at a moment, a clock of the caller's."""

from __future__ import annotations

import anyio
import pytest

from holdfast.errors import HandsLost
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, Hands, HandsSpec
from holdfast.hands.fake import FakeProvider, Pace
from holdfast.hands.fake_files import Files
from holdfast.testing.hands import bash, run, tool


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
