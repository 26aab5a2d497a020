"""Duties as a kind of session. Its loop is the conductor's, in `acts`."""

from __future__ import annotations

import msgspec

from holdfast.facts.session import SessionCreated
from holdfast.kinds.duty.conductor import is_held
from holdfast.kinds.duty.fold import FOLD, DutyState, of_duty
from holdfast.session.state import State
from holdfast.session.tenant import Kind


class DutyKind(Kind[State]):
    """Kind of sessions that are duties; they call no model."""

    name = "duty"
    state_type = DutyState
    sources = ("holdfast.kinds.duty.fold",)
    fold = FOLD

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """Return the state of a duty that never fired."""
        assert created.duty is not None
        return DutyState(created.duty, created.goal, 0, 0)

    def queue(self, state: State) -> tuple[str, ...]:
        """The number of triggers that wait."""
        waiting = len(of_duty(state).queue)
        return (f"queue: {waiting} waiting",) if waiting else ()

    def awaits_wake(self, state: State) -> bool:
        """True while an approver has to decide about failures."""
        return is_held(of_duty(state))


KIND = DutyKind()
