"""Whatever comes, it is a contract or it is refused; and what was written back is the same contract."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ContractInvalid
from holdfast.facts.mission import Contract
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.contract.formats.files import read_contract, write_back

NAMES = st.sampled_from(["feature_list.json", "prd.json", "PLAN.md", "issue.txt", "x"])

KEYS = st.sampled_from(
    ["id", "description", "title", "category", "steps", "priority", "acceptance", "check", "command", "metric",
     "target", "tests", "passes", "guard", "depends", "paths", "userStories", "tasks", "features", "body", "number",
     "goal", "zz"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
CHECKS = st.fixed_dictionaries(
    {"command": st.sampled_from(["pytest -q", "make check"])},
    optional={"tests": st.lists(st.sampled_from(["a.py", "b c.py"])), "timeout_s": st.floats(1, 100)},
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"description": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)},
        optional={
            "title": st.sampled_from(["A title", "Another"]),
            "priority": st.integers(0, 9),
            "acceptance": st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")) | CHECKS, max_size=3),
            "check": st.none() | CHECKS | st.just("pytest -q"),
            "passes": st.booleans(),
            "zz": VALUES.filter(lambda value: "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value)),
        },
    ),
    min_size=1,
    max_size=5,
)
LINES = st.sampled_from(
    ["# Title", "## Part", "### Acceptance criteria", "**Acceptance:**", "- [ ] do it", "  - [x] part of it",
     "- bullet", "  - check: `pytest`", "  - metric: `x` at least 1", "  - metric: `x` at least e", "  - id: one",
     "words", "", "```", "<!-- a", "-->", "  - depends: do-it", "- [x] I have searched", "1. first",
     "Done when:", "\ufeff"]
)  # fmt: skip


def readable(data: bytes, name: str) -> Contract | None:
    """The contract, None for one that is refused. Nothing else may come of it."""
    try:
        return read_contract(data, name)
    except ContractInvalid:
        return None


def holds(data: bytes, name: str, chosen: int) -> None:
    """A contract comes back the same from what was written back, whichever of its criteria passed."""
    contract = readable(data, name)
    if contract is None:
        return
    assert contract.items
    assert all(item.criteria for item in contract.items)
    assert len(contract.criteria()) == sum(len(item.criteria) for item in contract.items)
    passed = {each for n, each in enumerate(contract.criteria()) if chosen >> (n % 16) & 1}
    written = write_back(data, contract, passed)
    assert read_contract(written, name) == contract
    assert write_back(written, contract, passed) == written
    assert contract_digest(read_contract(written, name)) == contract_digest(contract)


@given(st.binary(max_size=200), NAMES, st.integers(0, 65535))
def test_any_bytes_are_a_contract_or_refused(data: bytes, name: str, chosen: int) -> None:
    holds(data, name, chosen)


@given(VALUES, NAMES, st.integers(0, 65535))
@settings(max_examples=300)
def test_any_json_is_a_contract_or_refused(value: Any, name: str, chosen: int) -> None:
    holds(json.dumps(value).encode(), name, chosen)


@given(ENTRIES, st.sampled_from([None, 1, 4]), st.integers(0, 65535))
@settings(max_examples=300)
def test_what_was_written_back_is_the_same_contract(entries: list[Any], indent: int | None, chosen: int) -> None:
    data = json.dumps(entries, indent=indent).encode()
    assert readable(data, "feature_list.json") is not None
    holds(data, "feature_list.json", chosen)


@given(st.lists(LINES, max_size=14), st.sampled_from(["PLAN.md", "issue.txt"]), st.integers(0, 65535))
@settings(max_examples=400)
def test_any_lines_are_a_plan_or_refused(lines: list[str], name: str, chosen: int) -> None:
    holds("\n".join(lines).encode(), name, chosen)
