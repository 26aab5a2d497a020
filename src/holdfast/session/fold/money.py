"""The fold of money: what was spent, and when."""

from __future__ import annotations

from holdfast.session.state import State

SPEND_STEP_US = 300_000_000
"""Spend is kept in mind by the five minutes."""

SPEND_STEPS = 12
"""An hour of them."""


def spend(state: State, pico: int, at_us: int) -> None:
    """Count what was spent, also by the time."""
    state.cost_pico += pico
    if not pico:
        return
    step = at_us // SPEND_STEP_US
    state.spend[step] = state.spend.get(step, 0) + pico
    newest = max(state.spend)
    for old in [each for each in state.spend if each <= newest - SPEND_STEPS]:
        del state.spend[old]
