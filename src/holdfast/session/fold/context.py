"""The fold of a context's life: what was put in place of older turns, and the signs that it goes wrong (S16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.context import (
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    PhaseEnded,
    RuleBreached,
    RuleChecked,
)
from holdfast.session.context.notes import note_of
from holdfast.session.context.tokens import estimate, estimate_pinned
from holdfast.session.fold.requests import TOO_LONG, failed
from holdfast.session.state import HandoffItem, Item, ResponseItem, State, SummaryItem

SUMMARIES_SHARE = 4
"""Summaries together may take up a quarter of the line; the oldest are dropped, never summarised again."""

SUMMARIES_AFTER_RESET_TOKENS = 6_000
"""Summaries of the torn-down context that stay, the newest ones: a fresh context has some 8,000 to 15,000 tokens."""


def cut_at(window: list[Item], through_seq: int) -> int:
    """How many items of the window stand through the last response asked for at or before `through_seq`."""
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
    state.seen = {}  # the successor has read nothing yet (S18)
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
    """The newest summaries that fit, at least one; the first of them says what is missing before it."""
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
    """The window is another one: count again, and let go of what the old one had failed at."""
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


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    ContextCompacted: _compacted,
    ContextReset: _reset,
    ContextFailed: _failed,
    ContextSign: _sign,
    PhaseEnded: _phase,
    RuleChecked: _checked,
    RuleBreached: _breached,
}
