"""The fold of model requests: what is open, what came, what it cost, how the models of the chain do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact, Usage
from holdfast.facts.budget import BreakerClosed, BreakerOpened
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart, Purpose
from holdfast.session.fold.calls import response_at
from holdfast.session.fold.money import spend
from holdfast.session.state import Failure, OpenRequest, Provider, State

PROVIDER = "provider:"
"""How the breaker of a model is named."""

_CALIBRATE_FROM_TOKENS = 2_000
"""A shorter request says little about the tokenizer: fixed overheads weigh too much."""

_SCALE_MILLI = (500, 4_000)
"""Estimates are never corrected beyond these bounds: a provider's odd count must not stop the work."""


OUTAGES = frozenset({"rate_limited", "overloaded", "unavailable"})
"""Failures that say nothing about the request: they are waited for, whatever it was for."""


TOO_LONG = "context_too_long"
"""The kind of failure that says a model takes less than it was given: the context is renewed at a lower line."""


def failed(state: State, purpose: Purpose) -> None:
    """A compaction or a handoff did not succeed (S16)."""
    if purpose == "compaction":
        state.context.failures += 1
    else:
        state.context.handoff_failures += 1


def _started(state: State, fact: ModelRequestStart, event: Event) -> None:
    state.request = OpenRequest(
        event.seq,
        event.epoch,
        fact.attempt,
        fact.model,
        fact.reserved_pico,
        fact.purpose,
        fact.input_tokens_estimate,
        fact.through_seq,
    )
    state.interrupted = 0
    if fact.purpose != "turn":
        return
    taken = [item for item in state.pending if item.seq <= fact.inputs_through]
    state.pending = [item for item in state.pending if item.seq > fact.inputs_through]
    for message in taken:
        state.place(message)


def _ended(state: State, fact: ModelRequestEnd, event: Event) -> None:
    spend(state, fact.cost_pico or 0, event.at_us)
    state.usage = state.usage + (fact.usage or Usage())
    state.uncounted = state.uncounted or (fact.outcome == "ok" and fact.usage is None)
    state.unpriced = state.unpriced or fact.cost_pico is None
    request, state.request = state.request, None
    model, purpose = (request.model, request.purpose) if request else ("", "turn")
    provider = state.providers.setdefault(model, Provider())
    if fact.outcome == "ok":
        state.failure, state.tries = None, 0
        state.attempts.pop(purpose, None)
        provider.failures = 0
        _answered(state, fact, request)
    elif fact.outcome == "error":
        state.tries += 1
        provider.failures += 1
        attempt = request.attempt if request else 1
        state.attempts[purpose] = attempt
        if purpose != "turn" and fact.error_kind not in OUTAGES:
            failed(state, purpose)
        if fact.error_kind == TOO_LONG and request is not None and purpose == "turn":
            state.context.learned_tokens = request.estimate * 4 // 5
        kind, message, after_s = fact.error_kind, fact.message, fact.retry_after_s
        state.failure = Failure(event.at_us, attempt, kind, message, after_s, model, purpose, event.seq)


def _answered(state: State, fact: ModelRequestEnd, request: OpenRequest | None) -> None:
    if request is not None and request.purpose == "compaction":
        state.summaries += 1
        return
    if request is not None and request.purpose == "handoff":
        state.handoffs += 1
        return
    state.responses += 1
    item = response_at(state, fact.request_seq)
    item.stop_reason = fact.stop_reason
    item.output_tokens = fact.usage.output_tokens if fact.usage else 0
    state.unseen = False
    if request is not None and fact.usage is not None:
        _calibrate(state, request.estimate, fact.usage)


def _calibrate(state: State, estimate: int, usage: Usage) -> None:
    """Learn how far estimates are off, slowly: a quarter of each new measurement. `estimate` was corrected already."""
    real = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    if estimate < _CALIBRATE_FROM_TOKENS or not real:
        return
    low, high = _SCALE_MILLI
    measured = min(high, max(low, real * state.context.scale_milli // estimate))
    state.context.scale_milli = (3 * state.context.scale_milli + measured) // 4


def _breaker_opened(state: State, fact: BreakerOpened, event: Event) -> None:
    if fact.breaker.startswith(PROVIDER):
        provider = state.providers.setdefault(fact.breaker.removeprefix(PROVIDER), Provider())
        provider.rest_until_us = fact.until_us or 0
        provider.failures = max(1, provider.failures)  # it rests until it answers, also one that could not be asked
    else:
        state.breaker = fact.breaker


def _breaker_closed(state: State, fact: BreakerClosed, event: Event) -> None:
    if fact.breaker.startswith(PROVIDER):
        provider = state.providers.setdefault(fact.breaker.removeprefix(PROVIDER), Provider())
        provider.rest_until_us = provider.failures = 0
        return
    state.breaker = ""
    state.asks = {item_id: ask for item_id, ask in state.asks.items() if ask.kind != "escalation"}
    state.failed_calls, state.spend = 0, {}
    state.clear_signs()
    state.trace.clear()


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    ModelRequestStart: _started,
    ModelRequestEnd: _ended,
    BreakerOpened: _breaker_opened,
    BreakerClosed: _breaker_closed,
}
