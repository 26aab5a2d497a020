"""Use case: what other rules would have decided about the recorded calls of a duty's firings. No model is asked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.facts.base import Rule
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import SessionCreated
from holdfast.log.base import Log
from holdfast.service.duties import history
from holdfast.session.decide.calls import rule_for
from holdfast.session.fold import empty, fold
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds
from holdfast.session.tools.policy import Decision


class Judged(msgspec.Struct, frozen=True):
    """A recorded call, what its rules decided, and what the others decide. `rule` is the deciding one of the others."""

    firing: int
    child_id: str
    call_id: str
    tool: str
    argument: str
    before: Decision
    after: Decision
    rule: Rule | None


class Ruled(msgspec.Struct, frozen=True):
    """A call and its ruling."""

    call_id: str
    tool: str
    argument: str
    decision: Decision
    rule: Rule | None


def ruled(events: Sequence[Event], kinds: Kinds, rules: tuple[Rule, ...] | None = None) -> list[Ruled]:
    """Return the ruling on each call of a session's log, under its own rules or under these. Pure.

    A call is judged when it was made, after all calls before it as they went: rules with a limited number of uses count
    what they would have allowed.
    """
    state, found = empty(events[0].session_id, kinds), list[Ruled]()
    for event in events:
        fact = event.fact
        if rules is not None and isinstance(fact, SessionCreated):
            agent = msgspec.structs.replace(fact.agent, rules=rules)
            event = msgspec.structs.replace(event, fact=msgspec.structs.replace(fact, agent=agent))
        state = fold(state, [event])
        if isinstance(fact, AgentToolUse):
            call = state.call(fact.call_id)
            if not call.problem:
                ruling = rule_for(state, call, event.at_us)
                found.append(Ruled(call.call_id, call.name, call.argument, ruling.decision, ruling.rule))
    return found


async def replay_rules(log: Log, kinds: Kinds, row: SessionRow, rules: tuple[Rule, ...], firings: int) -> list[Judged]:
    """Judge the calls of the last firings of a duty by these rules, oldest first."""
    fired = [entry for entry in await history(log, row, firings * 10) if entry.child_id][-firings:]
    judged: list[Judged] = []
    for entry in fired:
        events = await log.read(entry.child_id)
        pairs = zip(ruled(events, kinds), ruled(events, kinds, rules), strict=True)
        judged += [
            Judged(
                entry.firing, entry.child_id, now.call_id, now.tool, now.argument, was.decision, now.decision, now.rule
            )
            for was, now in pairs
        ]
    return judged
