"""When a session stops by itself and asks a person: money that goes too fast, calls that keep failing, no progress."""

from __future__ import annotations

from holdfast.facts.budget import BreakerClosed
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Escalate, Record
from holdfast.session.decide.people import close_all, standing, wait
from holdfast.session.fold.money import SPEND_STEP_US, SPEND_STEPS
from holdfast.session.money import usd
from holdfast.session.state import State

HOUR_S = SPEND_STEP_US * SPEND_STEPS // 1_000_000


def step(state: State, now_us: int) -> Action | None:
    """What a breaker wants; None when the work may go on."""
    if state.breaker:
        return _opened(state, now_us)
    limits = state.limits.breakers
    cap = limits.spend_per_hour_pico
    if cap is not None:
        spent = spent_last_hour(state, now_us)
        if spent >= cap:
            return Escalate("spend_rate", f"{usd(spent)} were spent within an hour; the line is {usd(cap)}")
    if state.failed_calls >= limits.tool_failures:
        evidence = tuple(call.seq for call in state.calls)
        return Escalate("tool_failures", f"{state.failed_calls} tool calls failed in a row", evidence)
    return None


def spent_last_hour(state: State, now_us: int) -> int:
    """Pico-dollars of the last hour, by steps of five minutes."""
    first = now_us // SPEND_STEP_US - SPEND_STEPS
    return sum(pico for at, pico in state.spend.items() if at > first)


def _opened(state: State, now_us: int) -> Action:
    """A breaker is open: a person says whether to go on, or says something new."""
    ask = next((each for each in state.asks.values() if each.kind == "escalation"), None)
    if ask is None or (ask.verdict is None and state.message_seq > ask.seq):
        why = "a person wrote" if ask is not None else "nothing is asked any more"
        over = standing(state, "escalation", "a person wrote instead")
        return Record((BreakerClosed(breaker=state.breaker, detail=why), *over))
    if ask.verdict is None:
        return wait(state, now_us, f"{state.breaker}: a person is asked how to go on")
    if ask.verdict == "approve":
        return Record((BreakerClosed(breaker=state.breaker, detail=ask.note or "a person said to go on"),))
    note = f": {ask.note}" if ask.note else ""
    who = "nobody answered in time" if ask.expired else "a person stopped it"
    return End(ShiftEnded(status="failed", detail=f"{state.breaker}: {who}{note}"), close_all(state, "over"))
