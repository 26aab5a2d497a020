"""What the permission rules say of a call."""

from __future__ import annotations

import pytest

from holdfast.facts.people import Grant
from holdfast.facts.session import Rule
from holdfast.session.policy import evaluate, grants


@pytest.mark.parametrize("tool", ["job_start", "service_start"])
def test_a_rule_for_bash_holds_for_what_runs_longer(tool: str) -> None:
    rules = (Rule("bash", "deny", "git push*"),)
    assert evaluate(rules, tool, "git push origin").decision == "deny"
    assert evaluate(rules, tool, "make").decision == "allow"
    assert evaluate((Rule("*", "deny"), Rule(tool, "allow")), tool, "make").decision == "allow"
    assert not grants(Grant("bash"), tool, "make", age_s=0.0, uses=0)
