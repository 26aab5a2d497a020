"""The row of a session follows from its events, one by one (S20)."""

from __future__ import annotations

import pytest

from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, ModelRequestEnd
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalSeen,
    UserCancel,
    UserInterrupt,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import Agent, Parent, People, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.shift import BudgetSet, ChildFinished, LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.union import type_of
from holdfast.session.rows import SessionRow, first_row, next_row

CREATED = SessionCreated(
    goal="  mend \n the   gate " + "x" * 300, agent=Agent("scripted:m"), workspace=Workspace("/w"), key="nightly"
)
STARTED = ShiftStarted(worker_id="wrk_1", host_id="h", boot_id="b", pid=1, program="p")
HELLO = UserMessage(content=(Text("hi"),))


def rows(*facts: Fact, epoch: int = 1) -> SessionRow:
    """The row after `session.created` and these, a microsecond apart."""
    row = first_row(event(CREATED, 1, 0))
    for seq, fact in enumerate(facts, 2):
        row = next_row(row, event(fact, seq, epoch))
    return row


def event(fact: Fact, seq: int, epoch: int) -> Event:
    return Event("ses_1", seq, epoch, 1_000 + seq, bytes([seq]) * 32, f"evt_{seq}", "brain", type_of(fact), fact)


def test_a_session_begins_runnable_and_due() -> None:
    row = rows()
    assert (row.status, row.due_us, row.holder, row.epoch, row.head) == ("runnable", 1_001, "", 0, 1)
    assert (row.key, row.model, row.workspace, row.accounts) == ("nightly", "scripted:m", "/w", ("ses_1",))
    assert row.goal == ("mend the gate " + "x" * 300)[:200]
    assert (row.created_us, row.updated_us, row.head_hash) == (1_001, 1_001, b"\1" * 32)


def test_every_event_moves_the_head() -> None:
    row = rows(HELLO, AgentMessage(request_seq=1, content=()), epoch=5)
    assert (row.head, row.head_hash, row.epoch, row.updated_us, row.created_us) == (3, b"\3" * 32, 5, 1_003, 1_001)


def test_a_shift_holds_and_stays_due_for_whoever_finds_its_worker_dead() -> None:
    row = rows(ShiftEnded(status="parked", reason="person", detail="asks"), STARTED)
    assert (row.holder, row.status, row.reason, row.detail, row.due_us) == ("wrk_1", "runnable", "", "", 1_003)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (ShiftEnded(status="parked", reason="timer", detail="d", due_us=9), ("parked", "timer", "d", 9)),
        (ShiftEnded(status="parked", reason="person"), ("parked", "person", "", None)),
        (ShiftEnded(status="done"), ("done", "", "", None)),
        (ShiftEnded(status="failed", detail="why"), ("failed", "", "why", None)),
        (ShiftEnded(status="cancelled"), ("cancelled", "", "", None)),
        (ShiftEnded(status="released"), ("runnable", "", "", 1_003)),
    ],
)
def test_the_end_of_a_shift_says_what_is_waited_for(ended: ShiftEnded, expected: tuple[object, ...]) -> None:
    row = rows(STARTED, ended)
    assert (row.status, row.reason, row.detail, row.due_us) == expected
    assert row.holder == ""


SAID: list[Fact] = [HELLO, UserInterrupt(), UserCancel(), SessionUpdated(max_turns=3)]
"""What a person says even to a session that is over."""

POSTED: list[Fact] = [
    UserPause(),
    UserResume(),
    ApprovalDecided(item_id="itm_1", verdict="approve"),
    ApprovalExpired(item_id="itm_1", verdict="deny"),
    ChildFinished(child_id="ses_2", status="done"),
    BudgetSet(account_id="ses_1", period="total", cap_pico=3),
]
"""What else concerns a session that waits."""


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("status", ["parked", "done", "failed"])
def test_what_a_person_says_wakes(said: Fact, status: str) -> None:
    row = rows(STARTED, ShiftEnded(status=status, detail="d"), said)  # type: ignore[arg-type]
    assert (row.status, row.reason, row.detail, row.due_us) == ("runnable", "", "", 1_004)


@pytest.mark.parametrize("posted", POSTED)
def test_what_concerns_a_session_wakes_it_while_it_waits(posted: Fact) -> None:
    row = rows(STARTED, ShiftEnded(status="parked", reason="person", detail="d"), posted)
    assert (row.status, row.reason, row.detail, row.due_us) == ("runnable", "", "", 1_004)


@pytest.mark.parametrize("posted", POSTED)
@pytest.mark.parametrize("status", ["done", "failed"])
def test_what_comes_late_does_not_open_it_again(posted: Fact, status: str) -> None:
    row = rows(STARTED, ShiftEnded(status=status, detail="d"), posted)  # type: ignore[arg-type]
    assert (row.status, row.detail, row.due_us, row.head) == (status, "d", None, 4)


@pytest.mark.parametrize("said", [*SAID, *POSTED])
def test_nothing_wakes_what_was_cancelled(said: Fact) -> None:
    row = rows(STARTED, ShiftEnded(status="cancelled"), said)
    assert (row.status, row.due_us, row.head) == ("cancelled", None, 4)


@pytest.mark.parametrize(("due", "expires", "expected"), [(None, 70, 70), (50, 70, 50), (90, 70, 70), (50, None, 50)])
def test_an_item_that_was_seen_is_due_when_it_expires(
    due: int | None, expires: int | None, expected: int | None
) -> None:
    seen = ApprovalSeen(item_id="itm_1", by="ann", expires_us=expires)
    parked = ShiftEnded(status="parked", reason="person", due_us=due)
    row = rows(STARTED, parked, seen)
    assert (row.status, row.reason, row.due_us) == ("parked", "person", expected)
    assert rows(STARTED, seen).due_us == 1_002
    assert rows(STARTED, ShiftEnded(status="done"), seen).due_us is None


def test_a_tree_is_read_from_the_first_event() -> None:
    row = rows()
    assert (row.parent, row.root, row.depth, row.owner, row.name) == ("", "ses_1", 0, "", "agent")
    for parent, root in ((Parent("ses_0", "1.0", 2, "ses_top"), "ses_top"), (Parent("ses_0", "1.0", 1), "ses_0")):
        agent, people = Agent("m", name="helper"), People(owner="ann")
        created = SessionCreated(goal="g", agent=agent, workspace=Workspace("/w"), parent=parent, people=people)
        row = first_row(event(created, 1, 0))
        assert (row.parent, row.root, row.depth) == ("ses_0", root, parent.depth)
        assert (row.owner, row.name) == ("ann", "helper")


def test_it_can_be_handed_over() -> None:
    handed = SessionUpdated(owner="ben")
    assert rows(handed).owner == "ben"
    assert rows(handed, SessionUpdated(max_turns=3)).owner == "ben"
    assert rows(handed, SessionUpdated(owner="")).owner == ""
    assert rows(STARTED, ShiftEnded(status="cancelled"), handed).owner == "ben"


def test_a_priced_call_costs() -> None:
    call = ToolResult(call_id="c", outcome="ok", content="", dispatch_seq=2, cost_pico=5)
    lost = ToolOutcomeUnknown(call_id="c", reason="r", content="", dispatch_seq=2, cost_pico=7)
    free = ToolResult(call_id="c", outcome="ok", content="")
    row = rows(call, lost, free)
    assert (row.cost_pico, row.turns) == (12, 0)


def test_a_message_does_not_take_the_holder_away() -> None:
    assert rows(STARTED, HELLO).holder == "wrk_1"
    assert rows(STARTED, LeaseStolen(from_worker_id="wrk_1", from_epoch=1)).holder == "wrk_1"


def test_turns_tokens_and_cost_add_up() -> None:
    ok = ModelRequestEnd(request_seq=2, outcome="ok", usage=Usage(100, 7, 50, 60), cost_pico=11)
    failed = ModelRequestEnd(request_seq=3, outcome="error", usage=Usage(5, 1), cost_pico=2)
    unknown = ModelRequestEnd(request_seq=4, outcome="presumed")
    row = rows(ok, failed, unknown, ok)
    assert (row.turns, row.input_tokens, row.output_tokens, row.cost_pico) == (2, 205, 15, 24)
