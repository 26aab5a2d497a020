"""State of a role's session: its submission, and the commits of its work."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import WorkSubmitted
from holdfast.facts.people import UserMessage
from holdfast.facts.task import RepoCommitted
from holdfast.facts.tool import NOT_HANDED_IN, HookRan, ToolResult
from holdfast.kinds.mission.role.tools import HANDING_IN
from holdfast.session.state import Apply, State


class RoleState(msgspec.Struct):
    """State of a role.

    `submitted_seq` is the position of its submission, 0 after a later message. `committed` is the latest commit of its
    work and its tree, at `committed_seq`. `silent` counts stops without a submission, `refused` the refused
    submissions. `sent_back` are submissions that hooks of the project refused, by call with their positions; `hooked`
    names the hands in which the session's hooks were started.
    """

    submitted_seq: int = 0
    committed: tuple[str, str] = ("", "")
    committed_seq: int = 0
    silent: int = 0
    refused: int = 0
    sent_back: dict[str, int] = {}
    hooked: str = ""


def role_state(state: State) -> RoleState:
    """Return the state of a role's session."""
    own = state.tenant.own
    assert isinstance(own, RoleState)
    return own


def _submitted(state: State, fact: WorkSubmitted, event: Event) -> None:
    own = role_state(state)
    own.submitted_seq, own.silent, own.refused, own.sent_back = event.seq, 0, 0, {}


def _told(state: State, fact: UserMessage, event: Event) -> None:
    own = role_state(state)
    own.submitted_seq = own.silent = own.refused = 0


def _committed(state: State, fact: RepoCommitted, event: Event) -> None:
    own = role_state(state)
    own.committed, own.committed_seq = (fact.commit, fact.tree), event.seq


def _hook(state: State, fact: HookRan, event: Event) -> None:
    own = role_state(state)
    if fact.event == NOT_HANDED_IN:
        own.silent += 1
    elif fact.event == "SessionStart" and state.hands is not None:
        own.hooked = state.hands.hands_id
    elif fact.blocked and fact.event in ("Stop", "SubagentStop"):
        own.sent_back.setdefault(fact.call_id, event.seq)


def _ended(state: State, fact: ToolResult, event: Event) -> None:
    own, call = role_state(state), state.call(fact.call_id)
    if fact.outcome == "error" and call.name in HANDING_IN and call.call_id not in own.sent_back:
        own.refused += 1


FOLD: Mapping[type[Fact], Apply] = {
    WorkSubmitted: _submitted,
    UserMessage: _told,
    RepoCommitted: _committed,
    HookRan: _hook,
    ToolResult: _ended,
}
