"""During an outage one session of a home asks its provider at a time, and its success lets all others go on."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest

from holdfast.app.models import shared_model
from holdfast.app.settings.config import Settings
from holdfast.errors import ModelError, ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta
from holdfast.model.shared import LONGEST_S, SharedModel
from holdfast.session.decide.providers import delay_s
from holdfast.session.state import Failure
from tests.fleet.clock import ManualClock, settle

REQUEST = ModelRequest("turn", "", (), (), 1, responses=0, attempt=1)


class Provider:
    """It is out for a while, or refuses; `asked` are the times of requests. A request may be held up."""

    name = "openai:m"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[float] = []
        self.out_until_s = 0.0
        self.kind: ModelErrorKind = "unavailable"
        self.after_s: float | None = None
        self.held: anyio.Event | None = None

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        return None

    def cost_pico(self, usage: Usage) -> int | None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        self.asked.append(self.clock.now_us() / 1e6)
        if self.held is not None:
            await self.held.wait()
        if self.clock.now_us() < self.out_until_s * 1e6:
            raise ModelError(self.kind, "nobody answers", retry_after_s=self.after_s)
        yield TextDelta("ok")
        yield Finish("end_turn", Usage(1, 1))


async def asks(model: SharedModel) -> str:
    """One request: its text, or the message of its failure."""
    try:
        return "".join([part.text async for part in model.stream(REQUEST) if isinstance(part, TextDelta)])
    except ModelError as error:
        return str(error)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def provider(clock: ManualClock) -> Provider:
    return Provider(clock)


def shared(provider: Provider, folder: Path, seed: int = 1) -> SharedModel:
    return SharedModel(provider, folder / "providers/one", provider.clock, Random(seed).randbytes)


async def test_nothing_is_there_while_all_is_well(provider: Provider, tmp_path: Path) -> None:
    assert await asks(shared(provider, tmp_path)) == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sessions", [1, 6])
async def test_half_an_hour(clock: ManualClock, provider: Provider, tmp_path: Path, sessions: int) -> None:
    """However many sessions wait, requests are those of one; all of them go on within one step after the end."""
    provider.out_until_s = clock.now_us() / 1e6 + 1_800
    models = [shared(provider, tmp_path, seed) for seed in range(sessions)]
    queue = [(clock.now_us(), number, 0) for number in range(sessions)]
    ended = []
    while queue:
        due_us, number, attempt = heapq.heappop(queue)
        clock.jump(max(0, due_us - clock.now_us()) / 1e6)
        try:
            async for _ in models[number].stream(REQUEST):
                pass
            ended.append(clock.now_us() / 1e6 - provider.out_until_s)
        except ModelError as error:
            after_s = error.retry_after_s
            failure = Failure(clock.now_us(), attempt + 1, error.kind, str(error), after_s, seq=number)
            heapq.heappush(queue, (clock.now_us() + int(delay_s(failure) * 1e6), number, attempt + 1))
    assert len(ended) == sessions
    assert max(ended) <= 2 * LONGEST_S
    during = [at for at in provider.asked if at < provider.out_until_s]
    assert 8 <= len(during) <= 40, len(during)
    assert list((tmp_path / "providers").iterdir()) == []


async def test_others_wait_for_the_one_that_asks(clock: ManualClock, provider: Provider, tmp_path: Path) -> None:
    provider.out_until_s = clock.now_us() / 1e6 + 1
    first, second = shared(provider, tmp_path, 1), shared(provider, tmp_path, 2)
    assert await asks(first) == "nobody answers"
    assert await asks(second) == "nobody answers (asked by another session)"
    assert len(provider.asked) == 1, "it is not due"
    clock.jump(10)
    provider.held = anyio.Event()
    said: list[str] = []

    async def one(model: SharedModel) -> None:
        said.append(await asks(model))

    async with anyio.create_task_group() as group:
        group.start_soon(one, first)
        await settle()
        group.start_soon(one, second)
        await clock.pass_(5)
        assert len(provider.asked) == 2, "the second one waits"
        provider.held.set()
        await clock.pass_(1)
    assert said == ["ok", "ok"]


async def test_an_answer_of_another_kind_ends_the_outage(
    clock: ManualClock, provider: Provider, tmp_path: Path
) -> None:
    provider.out_until_s = clock.now_us() / 1e6 + 100
    model = shared(provider, tmp_path)
    await asks(model)
    clock.jump(10)
    provider.kind = "auth"
    await asks(model)
    assert list((tmp_path / "providers").iterdir()) == []


@pytest.mark.parametrize("left", [b"", b"{", b'99999999999999999 {"kind":"unavailable","message":"m","failures":3}'])
async def test_what_a_killed_process_or_a_clock_left_holds_nobody_up(
    provider: Provider, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers/one").write_bytes(left)
    assert await asks(shared(provider, tmp_path)) == "ok"
    assert list((tmp_path / "providers").iterdir()) == []


class Row:
    """What homes on one log tell each other, by the clock of the database."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.told: dict[str, tuple[str, int]] = {}

    async def outage(self, model: str) -> tuple[str, int] | None:
        await anyio.lowlevel.checkpoint()
        says, due_us = self.told.get(model, ("", 0))
        return (says, due_us - self.clock.now_us()) if says else None

    async def tell_outage(self, model: str, says: str, wait_us: int) -> None:
        await anyio.lowlevel.checkpoint()
        self.told[model] = (says, self.clock.now_us() + wait_us)


def homes(provider: Provider, folder: Path, *names: str) -> list[SharedModel]:
    """A model of homes on one log."""
    row = Row(provider.clock)
    paths = [folder / name / "providers/one" for name in names]
    for path in paths:
        path.parent.parent.mkdir(exist_ok=True)
    return [SharedModel(provider, path, provider.clock, Random(seed).randbytes, row) for seed, path in enumerate(paths)]


async def test_homes_on_one_log_tell_each_other(clock: ManualClock, provider: Provider, tmp_path: Path) -> None:
    """What one home learns holds for the others; when it is due, one session of each home asks, and success ends it."""
    provider.out_until_s = clock.now_us() / 1e6 + 50
    here, same, there = homes(provider, tmp_path, "a", "a", "b")
    assert await asks(there) == "nobody answers"
    for model in (here, same, there):
        with pytest.raises(ModelError, match="asked by another session") as refused:
            [part async for part in model.stream(REQUEST)]
        assert 0 < (refused.value.retry_after_s or 0) <= 2
    assert len(provider.asked) == 1
    clock.jump(60)
    provider.held = anyio.Event()
    said: list[str] = []

    async def one(model: SharedModel) -> None:
        said.append(await asks(model))

    async with anyio.create_task_group() as group:
        for model in (here, same, there):
            group.start_soon(one, model)
        await clock.pass_(5)
        assert len(provider.asked) == 3, "one of each home asks"
        provider.held.set()
        await clock.pass_(1)
    assert said == ["ok"] * 3
    assert not any(path.is_file() for path in tmp_path.rglob("one"))
    asked, provider.held = len(provider.asked), anyio.Event()
    async with anyio.create_task_group() as group:
        for model in (here, same, there):
            group.start_soon(one, model)
        await clock.pass_(5)
        assert len(provider.asked) == asked + 3, "nobody waits for another one after the outage"
        provider.held.set()


async def test_a_limit_that_the_provider_named_holds_in_all_homes(
    clock: ManualClock, provider: Provider, tmp_path: Path
) -> None:
    provider.out_until_s, provider.kind, provider.after_s = clock.now_us() / 1e6 + 90, "rate_limited", 90.0
    here, there = homes(provider, tmp_path, "a", "b")
    await asks(here)
    for seconds, asked in ((0, 1), (45, 1), (44, 1), (2, 2)):
        clock.jump(seconds)
        await asks(there)
        assert len(provider.asked) == asked


async def test_failures_of_homes_lengthen_one_wait(clock: ManualClock, provider: Provider, tmp_path: Path) -> None:
    """However many homes wait, each failure doubles the bound of all."""
    provider.out_until_s = clock.now_us() / 1e6 + 1_800
    models = homes(provider, tmp_path, "a", "b", "c")
    while clock.now_us() / 1e6 < provider.out_until_s:
        for model in models:
            await asks(model)
        clock.jump(1)
    assert 8 <= len(provider.asked) <= 40, len(provider.asked)


def test_each_model_has_an_outage_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    files = set()
    for name in ("openai:gpt-one", "openai:gpt-two", "openai:gpt-one", "openai:gpt-two@http://127.0.0.1:8000/v1"):
        model = shared_model(name, Settings(), tmp_path)
        assert isinstance(model, SharedModel)
        files.add(model._file)
    assert len(files) == 3, "a fallback does not wait for the limit of another model or server"
