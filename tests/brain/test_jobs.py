"""Commands that outlive shifts, and servers: real brains over a log and hands in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from holdfast.brain.acts.results import gather
from holdfast.brain.recall import recall
from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased
from holdfast.facts.model import ContextCompacted, ContextReset
from holdfast.facts.session import HandsPolicy
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted, ToolDispatched, ToolResult
from holdfast.hands.base import ExecRequest
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider
from holdfast.kinds import KINDS
from holdfast.log.verify import verify
from holdfast.model.base import StreamPart
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.session.state import State
from holdfast.session.tools.jobs import JOB_TOOLS
from tests.brain.contexts import asked, limits, note, shown, work
from tests.brain.stage import Stage, turn
from tests.fleet.clock import HOUR_S, ManualClock

pytestmark = pytest.mark.anyio

TRAIN = ("job_start", {"name": "train", "command": "train", "timeout_s": 7_200})
"""Runs for an hour."""

SERVE = ("service_start", {"name": "web", "command": "serve", "health": "well"})


@dataclass
class Yard:
    """A stage whose jobs take an hour, and whoever tells of them."""

    turns: list[dict[str, Any]]
    warm: int = 0
    ran: list[str] = field(default_factory=list)
    news: list[tuple[str, str]] = field(default_factory=list)
    well: bool = True

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        tools = ("bash", "sleep", "ask_person", *JOB_TOOLS)
        self.stage = Stage(self.turns, clock=self.clock, tools=tools)
        self.hands = FakeProvider(
            self.clock,
            effect=self._effect,
            pace=self._pace,
            on_news=lambda session_id, call_id, news: self.news.append((call_id, news)),
        )
        self.stage.hands = self.hands
        self.stage.doors = replace(self.stage.doors, hands=self.hands)

    def _effect(self, command: str, files: Files) -> tuple[int, str]:
        if command == "well":
            return (0 if self.well else 1), "not yet"
        self.ran.append(command)
        return (1 if command == "fail" else 0), f"{command} said this"

    def _pace(self, call_id: str, request: ExecRequest) -> tuple[float, float]:
        return (0.0, HOUR_S) if request.tool == "job" else (0.0, 0.0)

    async def open(self) -> None:
        """Open the session, with its policy of hands."""
        self.stage.hands_policy = HandsPolicy(warm=self.warm)
        await self.stage.open()

    async def state(self) -> State:
        """The state now."""
        state, _ = await recall(self.stage.session_id, self.stage.store, self.stage.store, KINDS)
        return state

    async def tell(self) -> int:
        """What a supervisor's command does: take the news into the log. Returns how much was new."""
        state = await self.state()
        new = 0
        for news in await gather(self.hands, state, state.fence):
            post = self.stage.intake.drafted(self.stage.session_id, news.fact, news.key)
            new += not (await self.stage.store.post(post)).duplicate
        return new

    async def hour(self) -> None:
        """An hour passes; what is due in the hands happens."""
        await self.clock.pass_(HOUR_S)
        self.hands.settle()


async def test_a_job_parks_its_session_and_its_end_goes_on_with_it() -> None:
    yard = Yard([turn("", TRAIN), turn("I wait."), turn("It is trained.")])
    await yard.open()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert (parked.ended.status, parked.ended.reason) == ("parked", "job")
    assert "train (job_" in parked.ended.detail
    assert yard.hands.alive()  # the hands stay: the job runs in them
    assert (await yard.stage.wake()).idle

    await yard.hour()
    assert [news for _, news in yard.news] == ["exit"]
    assert await yard.tell() == 1
    assert await yard.tell() == 0  # told again by a supervisor that was not sure: nothing
    done = await yard.stage.wake("wrk_2")
    assert done.ended is not None
    assert done.ended.status == "done"
    (ended,) = await yard.stage.facts(JobEnded)
    assert ended.outcome == "ok"
    shown = str(yard.stage.model.requests[-1].messages)
    assert shown.count("is over after 3600 s") == 1
    assert "train said this" in shown
    assert yard.ran == ["train"]
    assert not yard.hands.alive()
    await verify(yard.stage.store, yard.stage.session_id)


async def test_a_job_goes_on_when_failures_park_its_session() -> None:
    yard = Yard([turn("", TRAIN), turn("I wait."), turn("It is trained.")])

    async def fails(part: StreamPart) -> None:
        if len(yard.stage.model.requests) > 1:
            raise RecursionError

    yard.stage.model.on_part = fails
    await yard.open()
    with pytest.raises(RecursionError):
        await yard.stage.wake()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert "failed twice in the same way" in parked.ended.detail
    assert yard.hands.alive()
    yard.stage.model.on_part = None
    await yard.hour()
    assert await yard.tell() == 1
    (ended,) = await yard.stage.facts(JobEnded)
    assert ended.outcome == "ok"


async def test_a_wait_for_a_job_is_ended_by_it_and_told_once() -> None:
    yard = Yard([turn("", TRAIN), turn("", ("job_wait", {})), turn("Done.")])
    await yard.open()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert parked.ended.reason == "job"
    await yard.hour()
    await yard.tell()
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    results = await yard.stage.facts(ToolResult)
    assert "is over after 3600 s" in results[-1].content
    assert str(yard.stage.model.requests[-1].messages).count("is over after 3600 s") == 1


async def test_news_that_never_came_are_found_by_whoever_wakes_it() -> None:
    yard = Yard([turn("", TRAIN), turn("I wait."), turn("Seen.")])
    await yard.open()
    await yard.stage.wake()
    await yard.hour()
    await yard.stage.post("send", "how is it?")
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    assert [fact.outcome for fact in await yard.stage.facts(JobEnded)] == ["ok"]


async def test_a_session_looks_after_a_job_that_nobody_told_of() -> None:
    """Its row has a time after which somebody looks: the job's latest end and a little."""
    yard = Yard([turn("", TRAIN), turn("I wait.")])
    await yard.open()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert parked.ended.due_us == yard.clock.now_us() + 7_200_000_000 + 120_000_000


async def test_a_deadline_wakes_it_and_is_told_once_while_the_job_goes_on() -> None:
    start = ("job_start", {**TRAIN[1], "deadline_s": 600})
    yard = Yard([turn("", start), turn("", ("job_wait", {})), turn("Go on."), turn("Done.")])
    await yard.open()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert parked.ended.due_us == yard.clock.now_us() + 600_000_000
    await yard.clock.pass_(601)
    again = await yard.stage.wake()
    assert again.ended is not None
    assert again.ended.reason == "job"  # it said so and waits on
    (late,) = await yard.stage.facts(JobLine)
    assert late.deadline
    wait = (await yard.stage.facts(ToolResult))[-1]
    assert "its deadline has passed" in wait.content
    assert "still runs" in wait.content
    await yard.hour()
    await yard.tell()
    assert (await yard.stage.wake()).state.ended.status == "done"  # type: ignore[union-attr]
    assert len(await yard.stage.facts(JobLine)) == 1


async def test_a_line_wakes_it() -> None:
    start = ("job_start", {**TRAIN[1], "line": "said (this|that)"})
    yard = Yard([turn("", start), turn("I wait."), turn("I saw the line."), turn("Done.")])
    await yard.open()
    await yard.stage.wake()
    assert [news for _, news in yard.news] == ["line"]
    assert await yard.tell() == 1
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert parked.ended.reason == "job"
    assert "train said this" in str(yard.stage.model.requests[-1].messages)
    assert await yard.tell() == 0
    await yard.hour()
    await yard.tell()
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"


async def test_hands_that_are_lost_leave_an_end_that_nobody_knows() -> None:
    yard = Yard([turn("", TRAIN), turn("I wait."), turn("I look.")])
    await yard.open()
    await yard.stage.wake()
    (hands_id,) = yard.hands.alive()
    yard.hands.lose(hands_id)
    assert yard.news[-1][1] == "lost"
    assert await yard.tell() == 1
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    assert [fact.outcome for fact in await yard.stage.facts(JobEnded)] == ["unknown"]
    assert "Nobody knows how job" in str(yard.stage.model.requests[-1].messages)
    assert len(await yard.stage.facts(HandsLost)) == 1
    assert yard.ran == ["train"]


async def test_a_restart_of_the_machine_is_found_out_by_the_next_brain() -> None:
    yard = Yard([turn("", TRAIN), turn("I wait."), turn("I look.")])
    await yard.open()
    await yard.stage.wake()
    yard.hands.reboot("another-boot")
    await yard.stage.post("send", "are you there?")
    await yard.stage.wake()
    assert [fact.outcome for fact in await yard.stage.facts(JobEnded)] == ["unknown"]


async def test_a_job_is_stopped_and_tells_so_once() -> None:
    yard = Yard([turn("", TRAIN), turn("", ("job_stop", {"job_id": "job_2.0"})), turn("Stopped.")])
    await yard.open()
    job_id = f"job_{await first_call(yard)}"
    yard = Yard([turn("", TRAIN), turn("", ("job_stop", {"job_id": job_id})), turn("Stopped.")])
    await yard.open()
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    assert [fact.outcome for fact in await yard.stage.facts(JobEnded)] == ["stopped"]
    assert str(yard.stage.model.requests[-1].messages).count("is over after") == 1


async def first_call(yard: Yard) -> str:
    """The id of the first call of such a session: ids follow from positions."""
    await yard.stage.wake()
    dispatched: list[ToolDispatched] = await yard.stage.facts(ToolDispatched)
    return dispatched[0].call_id


@pytest.mark.parametrize("act", ["interrupt", "pause", "cancel"])
async def test_what_people_say_ends_jobs_only_with_the_session(act: str) -> None:
    yard = Yard([turn("", TRAIN), turn("", ("job_wait", {})), turn("Done.")])
    await yard.open()
    await yard.stage.wake()
    await yard.stage.post(act)
    ended = (await yard.stage.wake()).ended
    assert ended is not None
    if act == "cancel":
        assert ended.status == "cancelled"
        assert [fact.outcome for fact in await yard.stage.facts(JobEnded)] == ["stopped"]
        assert not yard.hands.alive()
    else:
        assert (ended.status, ended.reason) == ("parked", "person")
        assert yard.hands.alive()
        assert (await yard.state()).live_jobs()


async def test_the_log_of_a_job_is_read_by_position() -> None:
    yard = Yard([turn("", TRAIN), turn("", ("job_log", {"job_id": "job_3.0"})), turn("Read.")])
    await yard.open()
    job_id = f"job_{await first_call(yard)}"
    calls = (
        ("job_log", {"job_id": job_id}),
        ("job_log", {"job_id": job_id, "after": 6}),
        ("job_log", {"job_id": "no"}),
    )
    yard = Yard([turn("", TRAIN), turn("", *calls), turn("Read.")])
    await yard.open()
    await yard.stage.wake()
    whole, part, none = (await yard.stage.facts(ToolResult))[1:4]
    assert "from position 0 to 15.]\ntrain said this" in whole.content
    assert "from position 6 to 15.]\nsaid this" in part.content
    assert none.outcome == "error"


async def test_a_service_runs_until_its_session_is_done() -> None:
    yard = Yard([turn("", SERVE), turn("", ("service_logs", {"name": "web"})), turn("Done.")])
    await yard.open()
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    assert [fact.name for fact in await yard.stage.facts(ServiceStarted)] == ["web"]
    (ended,) = await yard.stage.facts(ServiceEnded)
    assert (ended.reason, ended.content) == ("the session ended", "")
    assert "serve said this" in (await yard.stage.facts(ToolResult))[1].content


async def test_a_service_that_is_not_ready_is_ended_and_the_model_is_told() -> None:
    yard = Yard([turn("", (SERVE[0], {**SERVE[1], "ready_s": 0.5})), turn("Then not.")])
    yard.well = False
    await yard.open()
    async with anyio.create_task_group() as group:
        group.start_soon(yard.stage.wake)
        await yard.clock.pass_(2)
    (result,) = await yard.stage.facts(ToolResult)
    assert result.outcome == "error"
    assert "was not ready" in result.content
    assert not await yard.stage.facts(ServiceStarted)


async def test_services_that_go_with_their_hands_are_told_of_once() -> None:
    ask = ("ask_person", {"question": "Shall I?"})
    yard = Yard([turn("", SERVE), turn("", ask), turn("On."), turn("Done.")])
    await yard.open()
    await yard.stage.wake()
    (hands_id,) = yard.hands.alive()  # it waits for a person, and its server runs
    yard.hands.lose(hands_id)
    await yard.stage.post("send", "yes")
    done = await yard.stage.wake()
    assert done.ended is not None
    assert done.ended.status == "done"
    assert len(await yard.stage.facts(ServiceEnded)) == 1
    assert str(yard.stage.model.requests[-1].messages).count("Service web does not run any more") == 1


async def test_warm_hands_are_taken_up_by_the_next_shift() -> None:
    bash = ("bash", {"command": "one"})
    ask = ("ask_person", {"question": "Shall I?"})
    yard = Yard([turn("", bash), turn("", ask), turn("", bash), turn("Done.")], warm=1)
    await yard.open()
    await yard.stage.wake()
    assert len(yard.hands.alive()) == 1
    await yard.stage.post("send", "yes")
    await yard.stage.wake()
    assert len(await yard.stage.facts(HandsProvisioned)) == 1
    assert not yard.hands.alive()


async def test_warm_hands_that_nobody_needed_are_not_lost() -> None:
    bash = ("bash", {"command": "one"})
    ask = ("ask_person", {"question": "Shall I?"})
    yard = Yard([turn("", bash), turn("", ask), turn("", bash), turn("Done.")], warm=1)
    await yard.open()
    await yard.stage.wake()
    yard.hands.lose(yard.hands.alive()[0], "nobody needed it")
    await yard.stage.post("send", "yes")
    await yard.stage.wake()
    assert not await yard.stage.facts(HandsLost)
    assert len(await yard.stage.facts(HandsReleased)) == 2


async def test_no_more_jobs_than_the_cap() -> None:
    yard = Yard([turn("", *[TRAIN] * 17), turn("I wait.")])
    await yard.open()
    parked = await yard.stage.wake()
    assert len(await yard.stage.facts(JobStarted)) == 16
    assert "which is the cap" in (await yard.stage.facts(ToolResult))[-1].content
    assert isinstance(parked.ended, ShiftEnded)


@pytest.mark.parametrize("strategy", ["compaction", "reset"])
async def test_whoever_goes_on_after_a_renewed_context_knows_what_runs(strategy: str) -> None:
    turns = [turn("", TRAIN, SERVE), *work(20), turn("I wait."), turn("Done.")]
    yard = Yard(turns)
    yard.stage.limits = limits(strategy)
    yard.stage.model.inner = ScriptedModel(
        parse_script(json.dumps({"turns": turns, "compaction": [turn("so far")] * 9, "handoff": [note("so far")] * 9})),
        yard.clock,
    )
    await yard.open()
    parked = await yard.stage.wake()
    assert parked.ended is not None
    assert parked.ended.reason == "job"
    renewed = await yard.stage.facts(ContextCompacted if strategy == "compaction" else ContextReset)
    assert renewed
    last = shown(asked(yard.stage, "turn")[-1])
    assert "Job train (job_3.0) was running at event" in last
    assert "Service web was running at event" in last
