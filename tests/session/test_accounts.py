"""Rolling windows of an account (S15): never less than what was spent in them, whatever the order of spends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.money import (
    FINE_US,
    HOUR_US,
    WINDOW_US,
    AccountRow,
    Spend,
    Window,
    add_spend,
    frees_us,
    spent_within,
)

NOW = 1_790_000_000_000_000
WINDOWS: tuple[Window, ...] = ("hour", "day", "week")
WIDTH = {"hour": FINE_US, "day": HOUR_US, "week": HOUR_US}

spends = st.lists(st.tuples(st.integers(0, 400 * HOUR_US), st.integers(0, 10**14)), max_size=60)


def after(made: list[tuple[int, int]]) -> Spend:
    spend = Spend()
    for ago_us, pico in made:
        spend = add_spend(spend, NOW - ago_us, pico)
    return spend


@given(st.data(), spends)
def test_the_order_of_spends_does_not_matter(data: Any, made: list[tuple[int, int]]) -> None:
    assert after(made) == after(data.draw(st.permutations(made)))


@given(st.data(), st.integers(150, 260))
def test_not_even_when_there_are_more_than_are_kept(data: Any, hours: int) -> None:
    made = [(hour * HOUR_US, hour + 1) for hour in range(hours)]
    spend = after(data.draw(st.permutations(made)))
    assert spend == after(made)
    assert spent_within(spend, "week", NOW) == sum(hour + 1 for hour in range(min(hours, 169)))
    assert len(spend.hours) <= 180
    assert len(spend.fine) <= 25


@given(spends, st.sampled_from(WINDOWS))
def test_a_window_holds_all_that_was_spent_in_it_and_little_more(made: list[tuple[int, int]], window: Window) -> None:
    length, width = WINDOW_US[window], WIDTH[window]
    inside = sum(pico for ago, pico in made if ago <= length)
    nearly = sum(pico for ago, pico in made if ago <= length + width)
    assert inside <= spent_within(after(made), window, NOW) <= nearly


@given(spends, st.sampled_from(WINDOWS), st.integers(1, 10**15))
def test_a_window_frees_when_it_says(made: list[tuple[int, int]], window: Window, needed: int) -> None:
    spend = after(made)
    full = spent_within(spend, window, NOW)
    at_us = frees_us(spend, window, NOW, needed)
    assert (at_us is None) == (needed > full)
    if at_us is not None:
        assert full - spent_within(spend, window, at_us) >= needed
        assert full - spent_within(spend, window, at_us - 1) < needed


def test_a_clock_that_ran_ahead_for_long_does_not_count_for_ever() -> None:
    spend = add_spend(add_spend(Spend(), NOW + 400 * HOUR_US, 5), NOW, 3)
    assert spent_within(spend, "day", NOW) == 3
    assert spent_within(spend, "week", NOW) == 3
    ahead = add_spend(spend, NOW + 2 * HOUR_US, 7)
    assert spent_within(ahead, "day", NOW) == 10


def test_a_spend_of_nothing_is_none() -> None:
    assert add_spend(Spend(), NOW, 0) == Spend()


@given(spends)
def test_buckets_stand_in_order(made: list[tuple[int, int]]) -> None:
    spend = after(made)
    for buckets in (spend.fine, spend.hours):
        assert all(one[0] < two[0] for one, two in pairwise(buckets))


@pytest.mark.parametrize(("period", "cap", "spent"), [("total", 9, 50), ("day", 7, 20), ("week", 8, 30)])
def test_each_period_has_its_cap_and_its_sum(period: Any, cap: int, spent: int) -> None:
    spend = after([(0, 20), (30 * HOUR_US, 10)])
    account = AccountRow("a", 9, 50, 0, 7, 8, 0, spend)
    assert (account.cap_of(period), account.spent_in(period, NOW)) == (cap, spent)
