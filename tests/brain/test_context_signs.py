"""Signs, rules and estimates through a whole brain (S16, S17)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.facts.model import ContextReset, ContextSign, RuleBreached, RuleChecked
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.shift import BreakerOpened
from holdfast.proof.oracle.anxious import AnxiousModel
from holdfast.session.context.text import estimate
from holdfast.session.decide.context import window_tokens
from holdfast.session.tools import DEFAULT_TOOLS
from tests.brain.contexts import asked, ended, limits, shown, work
from tests.brain.stage import Stage, WatchedModel, turn

# --- signs and rules -----------------------------------------------------------------------------


async def test_an_anxious_worker_is_reset_recovers_and_finishes() -> None:
    line = 24_000
    stage = Stage([], limits=limits("compaction", line=line, keep=4_000, signs=True), tools=DEFAULT_TOOLS)
    stage.model = WatchedModel(AnxiousModel(0.6, line_tokens=line, parts=10, size=5_600))
    outcome = await ended(stage)
    files = stage.hands.files("/w")
    assert len(files) == 10
    assert all(content.startswith(b"done ") for content in files.values()), files.keys()
    assert outcome.ended.status == "done"
    signs, resets = await stage.facts(ContextSign), await stage.facts(ContextReset)
    assert [sign.kind for sign in signs] == ["anxiety"]
    assert [reset.cause for reset in resets] == ["anxiety"]


async def test_a_loop_is_reset_once_then_a_person_is_asked_and_their_word_goes_on() -> None:
    again = turn("Once more.", ("bash", {"command": "cat notes"}))
    stage = Stage([*[again] * 12, turn("Done.")], limits=limits(signs=True, line=100_000))
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    assert [sign.kind for sign in await stage.facts(ContextSign)] == ["loop", "loop"]
    assert [reset.cause for reset in await stage.facts(ContextReset)] == ["loop"]
    (item,) = await stage.facts(ApprovalRequested)
    assert item.kind == "escalation"
    assert item.evidence
    (opened,) = await stage.facts(BreakerOpened)
    assert opened.breaker == "no_progress"
    before = len(await stage.events())
    assert (await stage.wake()).idle
    assert len(await stage.events()) == before
    await stage.post("send", "the notes are in other.txt")
    outcome = await stage.wake()
    assert "the notes are in other.txt" in shown(stage.model.requests[-1]) + shown(stage.model.requests[-2])
    assert len(await stage.facts(BreakerOpened)) <= 2


async def test_a_broken_rule_is_an_event_once_and_the_model_is_told_once() -> None:
    commands = ["git push origin" if n in (1, 4) else f"do {n}" for n in range(9)]
    turns = [turn(f"Step {n}.", ("bash", {"command": command})) for n, command in enumerate(commands)]
    stage = Stage(
        [*turns, turn("Done.")],
        limits=limits("auto", line=100_000, check_every=3),
        pinned="# Rules\n\n- Never run `git push*`.\n- Be kind.\n",
    )
    await ended(stage)
    checks = await stage.facts(RuleChecked)
    assert len(checks) == 3
    assert all(after.from_seq == before.through_seq for before, after in pairwise(checks))
    assert {check.rules for check in checks} == {1}
    breaches = await stage.facts(RuleBreached)
    assert all("git push origin" in breach.detail for breach in breaches)
    uses = [event.seq for event in await stage.events() if "git push" in str(getattr(event.fact, "input", ""))]
    assert [breach.evidence for breach in breaches] == [(use,) for use in uses]
    told = [request for request in asked(stage, "turn") if "A rule of this project was not kept" in shown(request)]
    assert told[0].responses == 3
    assert shown(told[0]).count("A rule of this project was not kept") == 1
    assert shown(told[-1]).count("A rule of this project was not kept") == 2


async def test_a_rule_that_looks_over_the_edge_of_a_stretch_is_judged_once() -> None:
    edit = turn("I change.", ("write", {"file_path": "a.py", "content": "x"}))
    steps = [turn(f"Step {n}.", ("bash", {"command": f"do {n}"})) for n in range(14)]
    stage = Stage(
        [steps[0], steps[1], edit, *steps[2:], turn("Done.")],
        limits=limits("auto", line=100_000, check_every=3),
        pinned="Always run `make test` after editing `*.py`.",
    )
    await ended(stage)
    (breach,) = await stage.facts(RuleBreached)
    assert "a.py" in breach.detail


# --- estimates -----------------------------------------------------------------------------------


async def test_estimates_follow_what_requests_really_had() -> None:
    one = estimate("word " * 800) + 20
    turns = [
        each | {"usage": {"input_tokens": 2 * one * number, "output_tokens": 10}}
        for number, each in enumerate([*work(20, size=4_000), turn("Done.")])
    ]
    stage = Stage(turns, limits=limits(line=1_000_000))
    outcome = await ended(stage)
    assert 1_800 < outcome.state.context.scale_milli < 2_200
    estimates = [request.input_tokens_estimate for request in stage.model.requests]
    assert estimates[-1] == pytest.approx(2 * one * 20, rel=0.1)
    estimated = outcome.state.window_tokens
    assert window_tokens(outcome.state) == estimated * outcome.state.context.scale_milli // 1_000 > estimated
