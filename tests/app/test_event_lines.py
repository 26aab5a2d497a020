"""The line of each event on the terminal: the table is complete, and every line can be made."""

from __future__ import annotations

from holdfast.facts.union import FACT_TYPES
from holdfast.service.event_lines import DETAILS, LINES, NO_LINE, describe, in_detail
from tests.facts.test_golden import FILES, events


def test_every_event_type_has_a_line_or_is_listed_without_one() -> None:
    assert {*LINES, *DETAILS} | NO_LINE == set(FACT_TYPES.values())
    assert {*LINES, *DETAILS} & NO_LINE == set()


def test_every_stored_event_makes_its_line() -> None:
    shown = set()
    for path in FILES:
        for event in events(path):
            assert "\n" not in describe(event) + in_detail(event)
            if in_detail(event):
                shown.add(type(event.fact))
    assert shown & NO_LINE == set()
    assert len(shown) > len({*LINES, *DETAILS}) * 0.8
