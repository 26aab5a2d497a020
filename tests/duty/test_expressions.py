"""Expressions of alerts that are refused when a duty is added, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kinds.duty.expressions import History, Sample, parse, value_name
from holdfast.kinds.duty.reachable import check_reachable

REFUSED = {
    "errors >": "Syntax error",
    "errors": "no condition",
    "errors + 1": "no condition",
    "eror > 10": "no value of the duty: errors, load",
    'delta("eror", "1h") > 1': "no value of the duty",
    'errors > "10"': "no matching overload",
    "outcome > 3": "no matching overload",
    "errors.last > 3": "cannot be used",
    "now() > errors": "undeclared reference",
    'delta(errors, "1h") > 1': "plain text",
    'delta("errors") > 1': "plain text",
    'delta("errors", "1h" + "x") > 1': "plain text",
    'rate("errors", "5x") > 1': "no window",
    'rate("errors", "800d") > 1': "at most a year",
    "1 < 2": "depends on no value",
    "true": "depends on no value",
    "": "depends on no value",
    "errors > 1 " + "&& errors > 1 " * 100: "longer than",
    "!" * 2 + "(" * 60 + "errors > 1" + ")" * 60: "limit",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_expression_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"window|expression") as caught:
        parse(text, ("errors", "load"))
    said = str(caught.value)
    assert REFUSED[text] in said or (REFUSED[text] == "no window" and "is not a window" in said)


@pytest.mark.parametrize(
    "text",
    [
        "errors > 5 && errors < 3",
        "errors < load && load < errors",
        "failures < 0",
        "failures > 1 && failures < 2",
        'spend("1h") < 0 || spend_usd < 0',
        'outcome == "fail" && errors > 1',
        'missing("errors", "1h") && !missing( "errors","1h" )',
    ],
)
def test_a_condition_that_never_changes_is_found(text: str) -> None:
    with pytest.raises(ValueError, match="is never true"):
        check_reachable(text)
    with pytest.raises(ValueError, match="is always true"):
        check_reachable(f"!({text})")


@pytest.mark.parametrize(
    "text",
    [
        "errors > 3 && errors < 5",
        "errors > 1 && errors < failures && failures < 3",
        "failures >= 1 && failures <= 1",
        'rate("errors", "1h") > 2 && rate("errors", "2h") < 2',
        'outcome in ["failed", "timeout"] && spend_usd >= 1.5',
        'errors > 3 && missing("errors", "1h")',
        "errors - errors > 1",
        'outcome.startsWith("x")',
    ],
)
def test_a_condition_that_may_change_or_that_calculates_is_accepted(text: str) -> None:
    check_reachable(text)


@pytest.mark.parametrize("name", ["Errors", "9", "a-b", "", "outcome", "rate", "true", "x" * 64])
def test_a_name_that_expressions_cannot_use_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        value_name(name)


def test_what_is_not_known_is_neither_true_nor_false() -> None:
    assert parse("errors > 1 || load > 1").at(History(0, {"errors": [Sample(5, 0)]}), 9) is None
    assert parse("errors > 1 || load > 1").at(History(0, {"errors": [Sample(5, 2)]}), 9) is True
    assert parse("errors > 1 && load > 1").at(History(0, {"errors": [Sample(5, 0)]}), 9) is False
    assert parse("errors > 1").at(History(0, {"errors": [Sample(5, 2)]}), 4) is None


@given(st.text(alphabet="errors()[]{}<>=!&|\"'.,:?+-*/0123456789 delta1h", max_size=60))
def test_no_text_is_an_unexpected_error(text: str) -> None:
    try:
        found = parse(text, ()).at(History(0, {"errors": [Sample(5, 0)]}), 9)
    except ValueError as error:
        assert str(error)  # noqa: PT017
    else:
        assert found in (True, False, None)
