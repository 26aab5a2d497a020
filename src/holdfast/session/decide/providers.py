"""Choice of a model, retries, and breakers (S13)."""

from __future__ import annotations

import zlib

import msgspec

from holdfast.facts.model import Purpose
from holdfast.facts.shift import BreakerClosed, BreakerOpened, ShiftEnded
from holdfast.session.actions import Action, End, Escalate, Record, WaitUntil
from holdfast.session.context.window import inputs
from holdfast.session.decide.waits import close_all, due, is_over, standing, wait
from holdfast.session.fold.clock import SPEND_STEP_US, SPEND_STEPS
from holdfast.session.fold.requests import PROVIDER, TOO_LONG
from holdfast.session.money import usd
from holdfast.session.state import Failure, Provider, State


class Choice(msgspec.Struct, frozen=True):
    """The model for the next request, and the attempt's number since the last response, from 1."""

    model: str
    attempt: int


def chain(state: State) -> tuple[str, ...]:
    """Return the models available for a request, the preferred one first."""
    assert state.created is not None
    agent = state.created.agent
    return (agent.model, *agent.fallbacks)


def choose(state: State, now_us: int, purpose: Purpose = "turn") -> Choice | Action:
    """Choose the model for the next request; otherwise return an action: open a breaker, wait, park, or fail."""
    found = _choose(state, now_us, purpose)
    if not isinstance(found, Choice):
        return found
    return Choice(found.model, state.attempts.get(purpose, 0) + 1)


def _choose(state: State, now_us: int, purpose: Purpose) -> Choice | Action:
    models = chain(state)
    healed = _healed(state, now_us)
    if healed is not None:
        return healed
    failure = state.failure
    if failure is not None and failure.kind == TOO_LONG and purpose != "turn":
        failure = None  # this very request shortens the next turn
    if failure is not None and failure.purpose != "turn" and failure.kind not in RETRYABLE:
        failure = None  # a missing summary ends no session: its failures are counted, and the work goes on without it
    if failure is None:
        model = _awake(state, models, now_us)
        return Choice(model, 1) if model else _all_rest(state, models)
    tired = _tired(state, failure, models, now_us)
    if tired is not None:
        return tired
    model = _awake(state, models, now_us)
    if model is None:
        return _all_rest(state, models)
    if model != failure.model:
        return Choice(model, failure.attempt + 1)
    return _same_again(state, failure, now_us)


def _same_again(state: State, failure: Failure, now_us: int) -> Choice | Action:
    if failure.kind not in RETRYABLE:
        if inputs(state):  # a new message is a reason for another attempt
            return Choice(failure.model, failure.attempt + 1)
        if failure.kind == TOO_LONG:
            return End(ShiftEnded(status="parked", reason="context", detail=failure.message))
        if not state.tries:  # it failed in an earlier shift: the cause may be gone
            return Choice(failure.model, failure.attempt + 1)
        why = f"the model request failed ({failure.kind}): {failure.message}"
        return End(ShiftEnded(status="failed", detail=why), close_all(state, "the session failed"))
    due_us = failure.at_us + int(delay_s(failure) * 1_000_000)
    if state.tries >= state.limits.max_attempts:
        later_us = now_us + int(PARK_BEYOND_S * 1_000_000)
        why = f"{state.tries} attempts failed, the last with {failure.kind}: {failure.message}"
        return _park(why, max(later_us, due_us))
    if is_over(state, failure.seq, due_us, now_us, failure.at_us):
        return Choice(failure.model, failure.attempt + 1)
    due_us = due(state, failure.seq, due_us, failure.at_us)
    if due_us - now_us > PARK_BEYOND_S * 1_000_000:
        return _park(f"the provider asked to wait ({failure.kind}): {failure.message}", due_us)
    return WaitUntil(due_us)


def _park(detail: str, due_us: int) -> End:
    return End(ShiftEnded(status="parked", reason="provider", detail=detail, due_us=due_us))


def _awake(state: State, models: tuple[str, ...], now_us: int) -> str | None:
    since = _since(state)
    return next((each for each in models if is_over(state, since, _of(state, each).rest_until_us, now_us)), None)


def _since(state: State) -> int:
    """Return the latest failure, from which the current wait is measured."""
    return state.failure.seq if state.failure is not None else state.seq


def _all_rest(state: State, models: tuple[str, ...]) -> End:
    since = _since(state)
    until_us = min(due(state, since, _of(state, model).rest_until_us) for model in models)
    return _park(f"every model of this session rests after failures ({', '.join(models)})", until_us)


def _of(state: State, model: str) -> Provider:
    return state.providers.get(model) or Provider()


def _healed(state: State, now_us: int) -> Record | None:
    """Close the breaker of a model that answered after its wait, as an event."""
    for model, provider in state.providers.items():
        if provider.rest_until_us and provider.rest_until_us <= now_us and not provider.failures:
            return Record((BreakerClosed(breaker=PROVIDER + model, detail="it answers again"),))
    return None


def _tired(state: State, failure: Failure, models: tuple[str, ...], now_us: int) -> Record | None:
    """Open the breaker of a model if another one can replace it."""
    provider = _of(state, failure.model)
    others = [model for model in models if model != failure.model and _of(state, model).rest_until_us <= now_us]
    if not others or provider.rest_until_us > failure.at_us or failure.model not in models:
        return None
    limits = state.limits.breakers
    asked_us = int((failure.retry_after_s or 0) * 1_000_000)
    long = asked_us > PARK_BEYOND_S * 1_000_000
    if failure.kind in RETRYABLE and not long and provider.failures < limits.provider_failures:
        return None
    rest_us = max(int(limits.provider_rest_s * 1_000_000), asked_us)
    why = f"{provider.failures} failures in a row, the last with {failure.kind}: {failure.message}"
    return Record((BreakerOpened(breaker=PROVIDER + failure.model, detail=why, until_us=failure.at_us + rest_us),))


RETRYABLE = frozenset({"rate_limited", "overloaded", "timeout", "bad_stream", "unavailable"})
"""Kinds of failure that another attempt can resolve."""

PARK_BEYOND_S = 60.0
"""Longest wait without parking; a parked session costs nothing."""

LONGEST_DELAY_S = 300.0


def delay_s(failure: Failure) -> float:
    """Return the seconds from the failure to the next attempt: the provider's value, or backoff with full jitter.

    The backoff is from 1 s to a bound that doubles with each failed attempt since the last response, up to 5 minutes,
    so that many sessions do not ask a provider at the same moment. The failure itself is the source of the jitter.
    """
    if failure.retry_after_s is not None:
        return max(0.0, failure.retry_after_s)
    bound_s = min(LONGEST_DELAY_S, 2.0 ** min(failure.attempt - 1, 20))
    share = zlib.crc32(f"{failure.at_us} {failure.seq}".encode()) / (1 << 32)
    return 1.0 + share * (bound_s - 1.0)


HOUR_S = SPEND_STEP_US * SPEND_STEPS // 1_000_000


def check_breakers(state: State, now_us: int) -> Action | None:
    """Return the action of an open or opening breaker; None when the work may go on."""
    if state.breaker:
        return _open_breaker(state, now_us)
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
    """Return the spend of the last hour in pico-dollars, by five-minute steps."""
    first = now_us // SPEND_STEP_US - SPEND_STEPS
    return sum(pico for at, pico in state.spend.items() if at > first)


def _open_breaker(state: State, now_us: int) -> Action:
    """Return the action under an open breaker: a user decides to go on, or sends a message."""
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
