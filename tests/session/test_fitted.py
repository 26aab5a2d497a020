"""Slips of shape in what a role hands in: set right, never a reason to lose the work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.kinds.mission.role.tools import HAND_IN, SUBMIT_CONTRACT, SUBMIT_PLAN, SUBMIT_VERDICT, TOOLS, fitted
from holdfast.session.tools import check_input

DONE = {"status": "done", "notes": "It works."}
TASK = {"id": "a", "title": "A", "criteria": ["x"]}


@pytest.mark.parametrize(
    ("tool", "given", "wanted"),
    [
        (HAND_IN, DONE | {"findings": "one finding"}, DONE | {"findings": ["one finding"]}),
        (HAND_IN, DONE | {"findings": '["a", "b"]'}, DONE | {"findings": ["a", "b"]}),
        (HAND_IN, DONE | {"findings": ""}, DONE | {"findings": []}),
        (HAND_IN, DONE | {"findings": None, "next": None}, DONE),
        (HAND_IN, DONE | {"notes": ["First.", "Then."]}, DONE | {"notes": "First.\nThen."}),
        (SUBMIT_PLAN, {"tasks": TASK}, {"tasks": [TASK]}),
        (SUBMIT_PLAN, {"tasks": TASK | {"criteria": "x", "tokens": "500"}}, {"tasks": [TASK | {"tokens": 500}]}),
        (SUBMIT_PLAN, {"tasks": TASK | {"split": "true"}}, {"tasks": [TASK | {"split": True}]}),
        (
            SUBMIT_VERDICT,
            {"decision": "pass", "criteria": '[{"criterion": "x", "passes": "true", "evidence": "event 3"}]'},
            {"decision": "pass", "criteria": [{"criterion": "x", "passes": True, "evidence": ["event 3"]}]},
        ),
        (SUBMIT_CONTRACT, {"features": '[{"id": "f"}]'}, {"features": [{"id": "f"}]}),
    ],
)
def test_a_slip_of_shape_is_set_right(tool: str, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert fitted(tool, given) == (wanted, ())
    assert check_input(TOOLS[tool], given) == ""


def test_unknown_fields_are_left_out_with_a_note() -> None:
    found, notes = fitted(SUBMIT_PLAN, {"tasks": [TASK | {"priority": 1}], "confidence": 0.9})
    assert found == {"tasks": [TASK]}
    assert notes == ("`confidence` is no field and was left out", "`tasks[0].priority` is no field and was left out")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"notes": "no status"}, "missing required field `status`"),
        (DONE | {"status": "perfect"}, "status"),
        (DONE | {"status": "stopped"}, "status"),
        ({"status": "done"}, "notes"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    assert words in check_input(TOOLS[HAND_IN], given)


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    some.sampled_from((HAND_IN, SUBMIT_PLAN, SUBMIT_VERDICT, SUBMIT_CONTRACT)),
    some.dictionaries(some.sampled_from(("status", "notes", "tasks", "criteria", "features", "x")), _JSON),
)
def test_fitting_is_total_and_idempotent(tool: str, value: dict[str, Any]) -> None:
    once, _ = fitted(tool, value)
    again, notes = fitted(tool, once)
    assert (again, notes) == (once, ())
