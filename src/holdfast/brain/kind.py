"""The part of a kind of session that acts: what a brain does for it beside what it does for a plain agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse
from holdfast.facts.shift import ShiftEnded
from holdfast.hands.base import ExecResult, Hands
from holdfast.session.actions import Action
from holdfast.session.decide import decide
from holdfast.session.state import Call

Answer = Callable[[Shift, Call, dict[str, Any]], Awaitable[None]]


class Report(msgspec.Struct, frozen=True):
    """What a session reports to its parent beside its last message: what it handed in, and the commit of its work."""

    submitted: dict[str, Any] = {}
    commit: str = ""
    tree: str = ""


class Acts:
    """What a brain does for one session of a kind, in one shift. The defaults are those of a plain agent.

    `answers` are the tools of the kind that the harness itself answers, by name.
    """

    answers: Mapping[str, Answer] = {}

    def __init__(self, shift: Shift) -> None:
        self.shift = shift

    async def next(self) -> Action | None:
        """The next action; None when it is done already, or was begun beside the others."""
        return decide(self.shift.state, self.shift.doors.clock.now_us())

    def prompt(self) -> str:
        """The system prompt."""
        return self.shift.doors.prompt

    async def guarded(self) -> tuple[str, ...]:
        """Files of the workspace that its hands show read-only."""
        return ()

    async def before_call(self, hands: Hands, use: AgentToolUse) -> bool:
        """Whether a call that was dispatched may start. Its end is recorded when not. Raises `HandsLost`."""
        return True

    async def after_call(self, hands: Hands, use: AgentToolUse, result: ExecResult) -> tuple[Fact, ...]:
        """The facts to record beside the result of a call."""
        return ()

    async def before_end(self, ended: ShiftEnded) -> bool:
        """Finish what has to be done before a shift ends. True when something was appended: decide again."""
        return False

    async def report(self) -> Report:
        """What the session reports to its parent when it comes to rest."""
        return Report()


ACTS = Acts
"""A plain agent's."""
