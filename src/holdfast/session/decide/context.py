"""Decisions to compact or reset a context, and to check its rules (S16, S17).

Called before a request, when no call is open. All sizes are tokens, corrected by measured sizes of earlier requests.
Nothing here can loop: a compaction or a reset happens only where it frees a fair part of the limit, each counts its
failures, and after the last failure code writes the handoff, which cannot fail.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from holdfast.facts.model import ContextSign, ResetCause
from holdfast.session.actions import Action, CheckRules, Compact, Escalate, Record, Reset
from holdfast.session.context.handoff import CHARACTERS_MAX, raw
from holdfast.session.context.text import BYTES_PER_TOKEN
from holdfast.session.context.window import inputs, line_tokens, real
from holdfast.session.decide import providers
from holdfast.session.fold.requests import cut_at
from holdfast.session.signs import Sign, sign
from holdfast.session.signs.rules import Checkable, parse
from holdfast.session.signs.trace import CHANGE, turns
from holdfast.session.state import Item, ResponseItem, State

TOOL_SHARE = 0.8
"""Share of tool output from which `auto` resets instead of compacting: such output compresses poorly. A measured
worker's context is 60 to 80 percent tool output, so only a share above the usual one counts."""

GAIN = 8
"""Inverse of the smallest share of the limit worth freeing with a request: an eighth."""

STRETCH = 0.9
"""Share of the limit that one compaction covers at most; a longer stretch is compacted in several steps."""

IDLE_RESETS_MAX = 5
"""Maximum resets in a row with only read-only calls in between; then the session asks a user."""

SIGN_RESETS_MAX = 3
"""Maximum resets for a loop or no progress since the user's last message; then the session asks a user."""


def window_tokens(state: State) -> int:
    """Estimate the tokens of the next request, corrected by measured sizes of earlier ones."""
    return real(state, state.window_tokens + sum(item.tokens for item in inputs(state)))


def step(state: State, now_us: int) -> Action | None:
    """Return the action that the context needs before the next request; None for none."""
    last = state.window[-1] if state.window else None
    refused = isinstance(last, ResponseItem) and last.stop_reason == "refusal"
    policy = state.limits.context
    if state.responses >= state.limits.max_turns or (refused and not state.pending):
        return None
    asks = bool(state.pending) or state.unseen
    if asks and _rules_due(state):
        return CheckRules(state.context.checked_seq, state.seq)
    if policy.strategy == "off":
        return None
    action = _sign(state, now_us, asks=asks)
    if action is not None or not asks:
        return action
    if state.context.idle_resets >= IDLE_RESETS_MAX:
        full = f"the context was renewed {state.context.idle_resets} times in a row, and nothing was done in between"
        return Escalate("no_progress", full)
    if state.context.phase_seq and policy.strategy != "compaction" and _conversation(state):
        return _reset(state, now_us, "phase", "a phase of the work ended")
    if window_tokens(state) > line_tokens(state):
        return _line(state, now_us)
    return None


# --- rules ---------------------------------------------------------------------------------------


def _rules_due(state: State) -> bool:
    since = state.responses - state.context.checked_turns
    if since < state.limits.context.check_every or state.created is None:
        return False
    return bool(checkable(state.created.rules))


@lru_cache(maxsize=16)
def checkable(rules: str) -> tuple[Checkable, ...]:
    """Return the rules that code can check."""
    return parse(rules)


# --- signs ---------------------------------------------------------------------------------------


def _sign(state: State, now_us: int, *, asks: bool) -> Action | None:
    """Record a sign once, then act on it: reset, or ask a user if a reset did not help."""
    context = state.context
    if context.sign_seq and context.sign_kind is not None:
        kind, detail = context.sign_kind, context.sign_detail
        if _helpless(state, kind):
            return Escalate("no_progress", f"after a reset, again: {detail}", context.sign_evidence)
        return _reset(state, now_us, kind, detail)
    found = current_sign(state)
    if found is None or (not asks and found.kind != "anxiety"):
        return None
    return Record((ContextSign(kind=found.kind, detail=found.detail, evidence=found.evidence),))


def current_sign(state: State) -> Sign | None:
    """Return the sign that the trace shows now, if any."""
    if not state.limits.context.signs or not _conversation(state):
        return None
    fill = window_tokens(state) / max(1, line_tokens(state))
    return sign(state.trace, fill, state.limits.context, state.limits.breakers)


def _helpless(state: State, kind: str) -> bool:
    """Return True if a reset was tried for a sign without any change since, or too many were."""
    context = state.context
    if kind != "anxiety" and context.sign_resets >= SIGN_RESETS_MAX:
        return True
    if not context.signs_reset_seq:
        return False
    every, _ = turns(state.trace)
    return not any(turn.brought == CHANGE for turn in every)


# --- the limit -----------------------------------------------------------------------------------


def _line(state: State, now_us: int) -> Action | None:
    """Compact or reset a context over its limit, by its strategy and if that frees enough."""
    policy = state.limits.context
    strategy: Literal["compaction", "reset"]
    if policy.strategy == "auto":
        strategy = "reset" if tool_share(state) >= TOOL_SHARE else "compaction"
    else:
        strategy = "reset" if policy.strategy == "reset" else "compaction"
    if strategy == "compaction" and state.context.failures < policy.failures:
        through = compactable(state)
        if through:
            return _compact(state, now_us, through)
    cause: ResetCause = "compaction_failed" if strategy == "compaction" else "line"
    if _gain(state, _conversation(state)):
        return _reset(state, now_us, cause, "the context was over its line")
    return None


def tool_share(state: State) -> float:
    """Return the share of tool output in the window."""
    return state.context.tool_tokens / max(1, state.window_tokens)


def _conversation(state: State) -> list[Item]:
    """Return the items that a reset would drop."""
    return raw(state.window)


def _gain(state: State, items: list[Item]) -> bool:
    """Return True if dropping these items is worth it."""
    return real(state, sum(item.tokens for item in items)) * GAIN > line_tokens(state)


def compactable(state: State) -> int:
    """Return the last event that a compaction should cover now; 0 if a compaction would free nothing.

    It never covers the latest response with its results, which the model may not have seen yet, and leaves as many of
    the latest turns in full as the policy keeps.
    """
    keep = min(state.limits.context.keep_tokens, line_tokens(state) // 2)
    responses = [index for index, item in enumerate(state.window) if isinstance(item, ResponseItem)]
    cuts = [index + 1 for index in responses[:-1]]
    if not cuts:
        return 0
    fitting = [cut for cut in cuts if real(state, sum(item.tokens for item in state.window[cut:])) <= keep]
    cut = fitting[0] if fitting else cuts[-1]
    return _stretch_end(state, cut)


def _stretch_end(state: State, cut: int) -> int:
    """Return the end of a stretch that fits one request, within the first `cut` items of the window."""
    room = int(line_tokens(state) * STRETCH)
    tokens, through = 0, 0
    for item in raw(state.window[:cut]):
        tokens += real(state, item.tokens)
        if isinstance(item, ResponseItem):
            if through and tokens > room:
                break
            through = last_seq(item)
    return through if through and _gain(state, stretch(state, through)) else 0


def stretch(state: State, through_seq: int) -> list[Item]:
    """Return the raw items that a compaction through `through_seq` covers (S16)."""
    return raw(state.window[: cut_at(state.window, through_seq)])


def last_seq(item: ResponseItem) -> int:
    """Return the last event of a response and its results."""
    return max(item.request_seq, *item.parts, *item.results)


def note_characters(state: State) -> int:
    """Return the maximum length of a handoff: a quarter of the context limit."""
    return min(CHARACTERS_MAX, line_tokens(state) * BYTES_PER_TOKEN // 4)


# --- requests for compactions and handoffs -------------------------------------------------------


def _compact(state: State, now_us: int, through_seq: int) -> Action:
    found = providers.choose(state, now_us, "compaction")
    if not isinstance(found, providers.Choice):
        return found
    return Compact(through_seq, found.attempt, found.model)


def _reset(state: State, now_us: int, cause: ResetCause, detail: str) -> Action:
    if state.context.handoff_failures >= state.limits.context.failures:
        return Reset(cause, state.seq, 1, "", detail)
    found = providers.choose(state, now_us, "handoff")
    if not isinstance(found, providers.Choice):
        return found
    return Reset(cause, state.seq, found.attempt, found.model, detail)
