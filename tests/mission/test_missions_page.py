"""docs/missions.md has every policy, every key and every kind of finding, and its examples can be meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from holdfast.app.settings.mission_file import OWN_KEYS, POLICY_KEYS, parse_mission_file
from holdfast.facts.mission import MissionPolicy
from holdfast.kinds.mission.contract.formats.files import read_contract
from holdfast.kinds.mission.lint import FindingKind

PAGE = (Path(__file__).parents[2] / "docs" / "missions.md").read_text()


def block(kind: str) -> str:
    """The first example of a language."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def rows(heading: str) -> dict[str, list[str]]:
    """The table below a heading: first cell to the others."""
    part = PAGE.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:2] == "| "]
    return {first.strip("` |"): rest for first, *rest in cells}


@pytest.mark.parametrize("name", MissionPolicy.__struct_fields__)
def test_each_policy_is_there_with_its_values_and_what_it_assumes(name: str) -> None:
    values, assumption = rows("### Policies")[POLICY_KEYS[name]]
    assert len(assumption.split()) > 4
    default = getattr(MissionPolicy(), name)
    if isinstance(default, int) and not isinstance(default, bool):
        assert str(default) in values
    if isinstance(default, str):
        said = set(re.findall(r"`(\w+)`", values))
        assert said == set(get_args(MissionPolicy.__annotations__[name])) or default in said


def test_each_key_is_there() -> None:
    keys = "".join(rows("## mission.toml"))
    assert [name for name in OWN_KEYS if name not in keys] == []


def test_each_kind_of_finding_is_there() -> None:
    assert set(get_args(FindingKind)) <= rows("## Lint").keys()


def test_its_examples_can_be_meant() -> None:
    contract = read_contract(block("json").encode(), "feature_list.json")
    assert [each.check is None for each in contract.criteria().values()] == [True, False, False, False]
    assert json.loads(block("json"))[0]["passes"] is False
    plan = read_contract(block("md").encode(), "PLAN.md")
    assert [each.check is None for each in plan.criteria().values()] == [True, False, False]
    assert parse_mission_file(block("toml").encode(), Path("mission.toml")).policy.workers == 4
