"""The row of a session follows from its events, one by one (S20)."""

from __future__ import annotations

import pytest

from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, ModelRequestEnd
from holdfast.facts.session import Agent, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.union import type_of
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
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


@pytest.mark.parametrize("said", [HELLO, UserInterrupt(), UserCancel(), SessionUpdated(max_turns=3)])
@pytest.mark.parametrize("status", ["parked", "done", "failed"])
def test_what_a_person_says_wakes(said: Fact, status: str) -> None:
    row = rows(STARTED, ShiftEnded(status=status, detail="d"), said)  # type: ignore[arg-type]
    assert (row.status, row.reason, row.detail, row.due_us) == ("runnable", "", "", 1_004)


@pytest.mark.parametrize("said", [HELLO, UserInterrupt(), UserCancel(), SessionUpdated(max_turns=3)])
def test_nothing_wakes_what_was_cancelled(said: Fact) -> None:
    row = rows(STARTED, ShiftEnded(status="cancelled"), said)
    assert (row.status, row.due_us, row.head) == ("cancelled", None, 4)


def test_a_message_does_not_take_the_holder_away() -> None:
    assert rows(STARTED, HELLO).holder == "wrk_1"
    assert rows(STARTED, LeaseStolen(from_worker_id="wrk_1", from_epoch=1)).holder == "wrk_1"


def test_turns_tokens_and_cost_add_up() -> None:
    ok = ModelRequestEnd(request_seq=2, outcome="ok", usage=Usage(100, 7, 50, 60), cost_pico=11)
    failed = ModelRequestEnd(request_seq=3, outcome="error", usage=Usage(5, 1), cost_pico=2)
    unknown = ModelRequestEnd(request_seq=4, outcome="presumed")
    row = rows(ok, failed, unknown, ok)
    assert (row.turns, row.input_tokens, row.output_tokens, row.cost_pico) == (2, 205, 15, 24)
