"""Which model is asked, when again after a failure, and when a model rests (S13)."""

from __future__ import annotations

import msgspec

from holdfast.facts.budget import BreakerClosed, BreakerOpened
from holdfast.facts.model import Purpose
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Record, WaitUntil
from holdfast.session.context.inputs import inputs
from holdfast.session.decide.children import due, is_over
from holdfast.session.decide.people import close_all
from holdfast.session.decide.retry import PARK_BEYOND_S, RETRYABLE, delay_s
from holdfast.session.fold.requests import PROVIDER, TOO_LONG
from holdfast.session.state import Failure, Provider, State


class Choice(msgspec.Struct, frozen=True):
    """The model to ask, and which try this is since the last response, from 1."""

    model: str
    attempt: int


def chain(state: State) -> tuple[str, ...]:
    """The models that may be asked, the preferred one first."""
    assert state.created is not None
    agent = state.created.agent
    return (agent.model, *agent.fallbacks)


def choose(state: State, now_us: int, purpose: Purpose = "turn") -> Choice | Action:
    """Whom to ask now; otherwise what to do instead: rest a model, wait, park, or give up."""
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
        failure = None  # this very request makes the next turn shorter
    if failure is not None and failure.purpose != "turn" and failure.kind not in RETRYABLE:
        failure = None  # a summary that cannot be had ends no session: the lifecycle counts it and does without
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
        if inputs(state):  # somebody said something new: that deserves a try
            return Choice(failure.model, failure.attempt + 1)
        if failure.kind == TOO_LONG:
            return End(ShiftEnded(status="parked", reason="context", detail=failure.message))
        why = f"the model request failed ({failure.kind}): {failure.message}"
        return End(ShiftEnded(status="failed", detail=why), close_all(state, "the session failed"))
    due_us = failure.at_us + int(delay_s(failure, max(1, state.tries)) * 1_000_000)
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
    """The latest failure, which began the rest that is waited for."""
    return state.failure.seq if state.failure is not None else state.seq


def _all_rest(state: State, models: tuple[str, ...]) -> End:
    since = _since(state)
    until_us = min(due(state, since, _of(state, model).rest_until_us) for model in models)
    return _park(f"every model of this session rests after failures ({', '.join(models)})", until_us)


def _of(state: State, model: str) -> Provider:
    return state.providers.get(model) or Provider()


def _healed(state: State, now_us: int) -> Record | None:
    """A model that answered after its rest is taken back, as an event."""
    for model, provider in state.providers.items():
        if provider.rest_until_us and provider.rest_until_us <= now_us and not provider.failures:
            return Record((BreakerClosed(breaker=PROVIDER + model, detail="it answers again"),))
    return None


def _tired(state: State, failure: Failure, models: tuple[str, ...], now_us: int) -> Record | None:
    """Take a model out of the chain when another one can be asked instead."""
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
