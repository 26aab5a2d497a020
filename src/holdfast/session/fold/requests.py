"""Fold of model requests and of the context: usage, breakers, compactions, resets, and signs (S13, S16)."""

from __future__ import annotations

from holdfast.facts.base import Fact, Usage
from holdfast.facts.codec import Event
from holdfast.facts.model import (
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    ModelRequestEnd,
    ModelRequestStart,
    PhaseEnded,
    Purpose,
    RuleBreached,
    RuleChecked,
)
from holdfast.facts.shift import BreakerClosed, BreakerOpened
from holdfast.session.context.notes import note_of
from holdfast.session.context.text import estimate, estimate_pinned
from holdfast.session.fold.calls import response_at
from holdfast.session.fold.clock import spend
from holdfast.session.state import (
    Apply,
    Failure,
    HandoffItem,
    Item,
    OpenRequest,
    Provider,
    ResponseItem,
    State,
    SummaryItem,
)

PROVIDER = "provider:"
"""Prefix of the breaker of a model."""

_CALIBRATE_FROM_TOKENS = 2_000
"""A shorter request says little about the tokenizer: fixed overheads weigh too much."""

_SCALE_MILLI = (500, 4_000)
"""Estimates are never corrected beyond these bounds: a provider's odd count must not stop the work."""


OUTAGES = frozenset({"rate_limited", "overloaded", "unavailable"})
"""Failures unrelated to the request: the session waits and retries."""


TOO_LONG = "context_too_long"
"""Kind of failure of a model that accepts less than it was given: the context is renewed at a lower limit."""


def failed(state: State, purpose: Purpose) -> None:
    """Count a failed compaction or handoff (S16)."""
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
    if fact.purpose != "turn" or not state.pending:
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
    """Learn the error of estimates slowly: a quarter of each new measurement. `estimate` is already corrected."""
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
        provider.failures = max(1, provider.failures)  # stays open until it answers, even if it was never asked
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


SUMMARIES_SHARE = 4
"""Summaries may use a quarter of the limit; beyond it the oldest are dropped, never compacted again."""

SUMMARIES_AFTER_RESET_TOKENS = 6_000
"""Tokens of the newest summaries that survive a reset: a fresh context has some 8,000 to 15,000 tokens."""


def cut_at(window: list[Item], through_seq: int) -> int:
    """Return the number of items of the window through the last response requested at or before `through_seq`."""
    for index in range(len(window) - 1, -1, -1):
        item = window[index]
        if isinstance(item, ResponseItem) and item.request_seq <= through_seq:
            return index + 1
    return 0


def _compacted(state: State, fact: ContextCompacted, event: Event) -> None:
    cut = cut_at(state.window, fact.through_seq)
    before = [item for item in state.window[:cut] if isinstance(item, SummaryItem | HandoffItem)]
    summary = SummaryItem(event.seq, estimate(note_of(fact)), fact.through_seq)
    handoffs = [item for item in before if isinstance(item, HandoffItem)]
    summaries = [*(item for item in before if isinstance(item, SummaryItem)), summary]
    kept = _newest(summaries, _summaries_tokens(state))
    state.window = [*handoffs, *kept, *state.window[cut:]]
    state.context.through_seq = max(state.context.through_seq, fact.through_seq)
    state.context.compactions += 1
    _renewed(state)


def _reset(state: State, fact: ContextReset, event: Event) -> None:
    context = state.context
    cut = cut_at(state.window, fact.through_seq)
    summaries = [item for item in state.window[:cut] if isinstance(item, SummaryItem)]
    later = [item for item in state.window[cut:] if not isinstance(item, SummaryItem | HandoffItem)]
    later = [item for item in later if isinstance(item, ResponseItem) or item.seq > fact.through_seq]
    handoff = HandoffItem(event.seq, estimate(note_of(fact)))
    state.window = [handoff, *_newest(summaries, min(SUMMARIES_AFTER_RESET_TOKENS, _summaries_tokens(state))), *later]
    state.seen = {}  # the new context has read nothing yet (S18)
    state.unseen = True
    context.through_seq = max(context.through_seq, fact.through_seq)
    context.handoff = fact.handoff
    context.resets += 1
    context.idle_resets = 0 if context.did_seq > context.reset_seq else context.idle_resets + 1
    context.reset_seq = event.seq
    context.phase_seq = 0 if context.phase_seq <= fact.through_seq else context.phase_seq
    if fact.cause in ("anxiety", "loop", "no_progress"):
        context.signs_reset_seq = event.seq
        context.sign_resets += fact.cause != "anxiety"
    context.sign_seq, context.sign_kind = 0, None
    _renewed(state)


def _summaries_tokens(state: State) -> int:
    return min(state.limits.context.line_tokens, state.limits.context_tokens) // SUMMARIES_SHARE


def _newest(summaries: list[SummaryItem], tokens: int) -> list[SummaryItem]:
    """Return the newest summaries that fit, at least one; the first records the dropped ones before it."""
    kept = list(summaries)
    dropped = 0
    while len(kept) > 1 and sum(item.tokens for item in kept) > tokens:
        first = kept.pop(0)
        dropped = max(first.through_seq, first.dropped_seq)
    if dropped:
        first = kept[0]
        kept[0] = SummaryItem(first.seq, first.tokens, first.through_seq, max(dropped, first.dropped_seq))
    return kept


def _renewed(state: State) -> None:
    """Recount a renewed window, and clear the failures of the old one."""
    assert state.created is not None
    responses = [item for item in state.window if isinstance(item, ResponseItem)]
    if state.calls and not any(state.calls[0].seq in item.parts for item in responses):
        state.calls = []
    state.window_tokens = estimate_pinned(state.created) + sum(item.tokens for item in state.window)
    state.context.tool_tokens = sum(item.tool_tokens for item in responses)
    state.context.failures = state.context.handoff_failures = 0
    for purpose in ("compaction", "handoff"):
        state.attempts.pop(purpose, None)
    if state.failure is not None and (state.failure.purpose != "turn" or state.failure.kind == TOO_LONG):
        state.failure = None


def _failed(state: State, fact: ContextFailed, event: Event) -> None:
    failed(state, fact.purpose)


def _sign(state: State, fact: ContextSign, event: Event) -> None:
    context = state.context
    context.sign_seq, context.sign_kind = event.seq, fact.kind
    context.sign_detail, context.sign_evidence = fact.detail, fact.evidence


def _phase(state: State, fact: PhaseEnded, event: Event) -> None:
    state.context.phase_seq = event.seq


def _checked(state: State, fact: RuleChecked, event: Event) -> None:
    state.context.checked_seq, state.context.checked_turns = fact.through_seq, state.responses


def _breached(state: State, fact: RuleBreached, event: Event) -> None:
    state.posted(event.seq, estimate(note_of(fact)))


APPLY: dict[type[Fact], Apply] = {
    ModelRequestStart: _started,
    ModelRequestEnd: _ended,
    BreakerOpened: _breaker_opened,
    BreakerClosed: _breaker_closed,
    ContextCompacted: _compacted,
    ContextReset: _reset,
    ContextFailed: _failed,
    ContextSign: _sign,
    PhaseEnded: _phase,
    RuleChecked: _checked,
    RuleBreached: _breached,
}
