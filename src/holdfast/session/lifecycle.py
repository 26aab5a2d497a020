"""When a context is compacted or reset, and when its rules are looked at (S16, S17)."""

from __future__ import annotations

from holdfast.session.actions import Action
from holdfast.session.state import State


def window_tokens(state: State) -> int:
    """About how many tokens the next request has, corrected by what earlier ones really had."""
    estimated = state.window_tokens + sum(item.tokens for item in state.pending)
    return estimated * state.context.scale_milli // 1_000


def step(state: State, now_us: int) -> Action | None:
    """What the context needs before the next request; None when nothing."""
    return None
