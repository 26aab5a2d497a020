"""The life of a context through a whole brain: compaction and reset (S16, S17, S18)."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.facts.model import ContextCompacted, ContextFailed, ContextReset, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolResult
from holdfast.hands.fake.calls import Files
from holdfast.model.base import StreamPart
from holdfast.session.context.conversation import TextPart
from tests.brain.contexts import asked, ended, limits, note, shown, work
from tests.brain.stage import Stage, turn


async def test_a_long_session_is_compacted_and_goes_on_to_its_end() -> None:
    stage = Stage([*work(20), turn("Done.")], limits=limits())
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    summaries = await stage.facts(ContextCompacted)
    assert len(summaries) >= 2
    assert all(later.from_seq == earlier.through_seq for earlier, later in pairwise(summaries))
    assert all(fact.tokens_after < fact.tokens_before for fact in summaries)
    turns = [request for request in stage.model.requests if request.purpose == "turn"]
    assert [request.responses for request in turns] == list(range(21))
    assert max(request.input_tokens_estimate for request in turns) < 5_000


async def test_a_long_session_is_reset_and_goes_on_to_its_end() -> None:
    stage = Stage([*work(20), turn("Done.")], limits=limits("reset"))
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    resets = await stage.facts(ContextReset)
    assert len(resets) >= 2
    assert all(fact.cause == "line" for fact in resets)
    assert [request.purpose for request in stage.model.requests].count("handoff") == len(resets)


# --- what is asked for, and what comes of it -----------------------------------------------------


async def test_no_summary_or_note_is_ever_shown_to_whoever_makes_the_next() -> None:
    phase = turn("A part is over.", ("end_phase", {"name": "one"}))
    search = turn("I look it up.", ("search_log", {"query": "MARK-S"}), ("search_log", {"query": "MARK-N"}))
    turns: list[dict[str, Any]] = []
    for _ in range(5):
        turns += [*work(7), search, phase]
    summaries = [turn(f"MARK-S {number} of what was done") for number in range(30)]
    notes = [note(f"MARK-N {number}") for number in range(30)]
    stage = Stage(
        [*turns, turn("Done.")],
        limits=limits("hybrid"),
        compaction=summaries,
        handoff=notes,
        pinned="Never run `git push`.",
        criteria=("it works",),
        tools=("bash", "end_phase", "search_log"),
    )
    outcome = await ended(stage)
    compactions, handoffs = asked(stage, "compaction"), asked(stage, "handoff")
    assert len(compactions) >= 4
    assert len(handoffs) == 5
    for request in (*compactions, *handoffs):
        assert "MARK-S " not in shown(request)
        assert "MARK-N " not in shown(request)
        assert request.tools == ()
        for pinned in ("the goal", "Never run `git push`.", "it works"):
            assert pinned in shown(request)
    assert [request.responses for request in handoffs] == list(range(5))
    merged = outcome.state.context.handoff
    assert merged is not None
    assert merged.done == tuple(f"MARK-N {number} done" for number in range(5))
    last = shown(asked(stage, "turn")[-1])
    assert "MARK-N 0 done" in last
    assert "MARK-N 4 next" in last
    heads = {(request.system, str(request.messages[0].parts[0])) for request in asked(stage, "turn")}
    assert len(heads) == 1


async def test_an_edit_after_a_reset_is_refused_until_the_file_is_read_again() -> None:
    read = turn("I read.", ("read", {"file_path": "a.txt"}))
    edit = turn("I edit.", ("edit", {"file_path": "a.txt", "old_string": "old", "new_string": "new"}))
    phase = turn("Over.", ("end_phase", {"name": "reading"}))
    stage = Stage(
        [read, phase, edit, read, edit, turn("Done.")],
        limits=limits("hybrid"),
        handoff=[turn(json.dumps({"workspace": ["a.txt holds old"]}))],
        tools=("read", "edit", "end_phase"),
    )
    stage.hands.files("/w")["/workspace/a.txt"] = b"old"
    await ended(stage)
    results = await stage.facts(ToolResult)
    assert [result.outcome for result in results] == ["ok", "ok", "error", "ok", "ok"]
    (reset,) = await stage.facts(ContextReset)
    (path,) = reset.files
    assert path.endswith("a.txt")
    assert f"- {path} {reset.files[path][:16]}" in shown(asked(stage, "turn")[2])


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([turn(""), turn("  ")], "empty"),
        ([turn("x" * 20_000), turn("y" * 20_000)], "what it stands for"),
        ([turn("no", error="refusal"), turn("no", error="refusal")], "refused"),
    ],
    ids=["empty", "longer than what it stands for", "refused"],
)
async def test_summaries_that_cannot_be_used_lead_to_a_reset(answers: list[dict[str, Any]], why: str) -> None:
    stage = Stage([*work(8), turn("Done.")], limits=limits(), compaction=answers, handoff=[note("all is well")])
    await ended(stage)
    failures = await stage.facts(ContextFailed)
    assert len(failures) == 2
    assert all(why in failure.reason for failure in failures)
    assert [reset.cause for reset in await stage.facts(ContextReset)][:1] == ["compaction_failed"]


async def test_a_note_that_nobody_writes_is_written_by_code_from_the_log() -> None:
    turns = [
        turn("I write.", ("write", {"file_path": "kept.txt", "content": "x" * 6_000})),
        turn("I test. " + "w" * 4_000, ("bash", {"command": "make test"})),
        turn("I break. " + "w" * 4_000, ("bash", {"command": "make broken"})),
        turn("My last words. " + "w" * 1_000, ("bash", {"command": "ls"})),
    ]
    bad = [turn("no JSON at all"), turn('{"done": "not a list"}')]

    def effect(command: str, files: Files) -> tuple[int, str]:
        return (1 if "broken" in command else 0), "output"

    stage = Stage([*turns, turn("Done.")], limits=limits("reset"), handoff=bad, effect=effect)
    await ended(stage)
    (reset,) = await stage.facts(ContextReset)
    assert reset.request_seq == 0
    assert len(await stage.facts(ContextFailed)) == 2
    done, workspace, following = reset.handoff.done, reset.handoff.workspace, reset.handoff.next
    assert any("kept.txt" in entry and "SHA-256" in entry for entry in done)
    assert "ran with success: make test" in done
    assert workspace == ("failed when last run: make broken",)
    assert "w" * 500 in following[0]
    assert list(reset.files) == ["/workspace/kept.txt"]
    assert "written by the harness" in shown(asked(stage, "turn")[-1])


async def test_requests_that_fail_are_tried_again_and_their_money_is_settled() -> None:
    once = [turn("A summary.", error="overloaded", retry_after_s=0.01)]
    price = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
    stage = Stage([*work(8), turn("Done.")], limits=limits(), compaction=once, price=price)
    outcome = await ended(stage)
    first, second, *_ = asked(stage, "compaction")
    assert (first.attempt, second.attempt) == (1, 2)
    assert all(request.attempt == 1 for request in asked(stage, "turn"))
    ends = await stage.facts(ModelRequestEnd)
    assert outcome.state.cost_pico == sum(end.cost_pico for end in ends) > 0
    starts = [fact for fact in await stage.facts(ModelRequestStart) if fact.purpose == "compaction"]
    assert all(start.reserved_pico and start.through_seq == start.inputs_through for start in starts)


async def test_money_that_is_not_there_parks_a_compaction_like_a_turn() -> None:
    price = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
    dear = [turn("A summary.", usage={"input_tokens": 10**6, "output_tokens": 0})]
    stage = Stage(work(9), limits=msgspec.structs.replace(limits(), budget_pico=10**11), compaction=dear, price=price)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "budget")
    assert not asked(stage, "compaction")


# --- crashes, interrupts, messages in between ----------------------------------------------------


@pytest.mark.parametrize("strategy", ["compaction", "reset"])
async def test_a_brain_that_dies_in_the_middle_is_followed_by_one_that_does_it_again(strategy: str) -> None:
    purpose = "compaction" if strategy == "compaction" else "handoff"
    stage = Stage([*work(9), turn("Done.")], limits=limits(strategy))
    held = anyio.Event()

    async def hold(part: StreamPart) -> None:
        if stage.model.requests[-1].purpose == purpose and not held.is_set():
            held.set()
            await anyio.sleep_forever()

    stage.model.on_part = hold
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(_swallow, stage)
        await held.wait()
        before = await stage.events()
        stage.store.worker_died("wrk_1")
        stage.model.on_part = None
        outcome = await stage.wake("wrk_2", steal=True)
        group.cancel_scope.cancel()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert (await stage.events())[: len(before)] == before
    starts = [event for event in await stage.events() if getattr(event.fact, "purpose", "") == purpose]
    presumed = [fact for fact in await stage.facts(ModelRequestEnd) if fact.outcome == "presumed"]
    assert [fact.request_seq for fact in presumed] == [starts[0].seq]
    through = [getattr(event.fact, "through_seq", 0) for event in starts]
    if strategy == "compaction":
        assert through[0] == through[1]
    renewed: list[Any] = await stage.facts(ContextCompacted if strategy == "compaction" else ContextReset)
    assert len(renewed) == len(starts) - 1
    requests = asked(stage, purpose)
    assert (requests[0].responses, requests[1].responses) == (0, 0)


async def _swallow(stage: Stage) -> None:
    """The first brain, that is left to itself."""
    await stage.wake()


async def test_an_interrupt_cancels_a_compaction_and_after_a_word_the_turn_goes_on() -> None:
    stage = Stage([*work(9), turn("Done.")], limits=limits())
    posted: list[str] = []

    async def interrupt(part: StreamPart) -> None:
        if stage.model.requests[-1].purpose == "compaction" and not posted:
            posted.append("interrupt")
            await stage.post("interrupt")
            await anyio.sleep_forever()

    stage.model.on_part = interrupt
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    assert not await stage.facts(ContextCompacted)
    await stage.post("send", "go on")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert await stage.facts(ContextCompacted)
    assert "go on" in shown(asked(stage, "turn")[-1])


async def test_a_message_during_a_compaction_stays_in_full_and_is_shown_at_the_next_turn() -> None:
    stage = Stage([*work(9), turn("Done.")], limits=limits())

    async def say(part: StreamPart) -> None:
        if stage.model.requests[-1].purpose == "compaction":
            stage.model.on_part = None
            await stage.post("send", "mind the gap")

    stage.model.on_part = say
    await ended(stage)
    assert await stage.facts(ContextCompacted)
    place = next(index for index, request in enumerate(stage.model.requests) if request.purpose == "compaction")
    assert "mind the gap" not in shown(stage.model.requests[place])
    after = stage.model.requests[place + 1]
    assert after.purpose == "turn"
    assert after.messages[-1].parts[-1] == TextPart("mind the gap")


async def test_a_message_between_the_decision_and_the_start_is_folded_first() -> None:
    stage = Stage([*work(9), turn("Done.")], limits=limits())
    store, whole = stage.store, stage.store.append
    moved: list[int] = []

    async def append(session_id: str, epoch: int, drafts: Any, **more: Any) -> Any:
        purpose = getattr(drafts[0].fact, "purpose", "")
        if purpose == "compaction" and not moved:
            moved.append(more["head"])
            await stage.post("send", "first this")
        return await whole(session_id, epoch, drafts, **more)

    stage.doors = dataclasses.replace(stage.doors, log=_Between(store, append))
    await ended(stage)
    events = await stage.events()
    (said,) = [event.seq for event in events if isinstance(event.fact, UserMessage)]
    starts = [event.seq for event in events if getattr(event.fact, "purpose", "") == "compaction"]
    assert said == moved[0] + 1
    assert starts[0] > said
    assert len(starts) == len(await stage.facts(ContextCompacted))


class _Between:
    """The store with another append."""

    def __init__(self, store: Any, append: Any) -> None:
        self._store = store
        self.append = append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
