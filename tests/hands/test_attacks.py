"""A hostile command gets nowhere: the same attempts as root's hands and as an ordinary user's."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from tests.hands.attack_driver import CANARY, attack
from tests.hands.attack_numbers import ALL, ELSEWHERE
from tests.hands.attack_pair_driver import both
from tests.support.as_user import UID, run_as_user


def held(found: dict[str, str]) -> dict[str, str]:
    """The attempts whose wall did not hold, or which did not try at all."""
    return {name: verdict for name, verdict in found.items() if not name.startswith("__") and verdict[:7] != "blocked"}


@pytest.mark.parametrize("full", [False, True], ids=["plain", "full"])
async def test_nothing_gets_out(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", CANARY)
    found = await attack(tmp_path, full=full)
    assert held(found) == {}
    assert len(found) >= 140
    assert found["__uid"] != "0"


@pytest.mark.parametrize("full", [(), ("full",)], ids=["plain", "full"])
def test_nothing_gets_out_as_an_ordinary_user(full: tuple[str, ...], tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.hands.attack_driver", *full)
    assert held(found) == {}
    assert len(found) >= 140
    assert found["__uid"] == str(UID)
    assert os.getuid() == 0


async def test_two_sessions_see_nothing_of_each_other(tmp_path: Path) -> None:
    found = await both(tmp_path)
    assert held(found) == {}
    assert len(found) >= 24
    first, second = found["__uids"].split(",")
    assert first != second
    assert "0" not in (first, second)


def test_two_sessions_of_an_ordinary_user_see_nothing_of_each_other(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.hands.attack_pair_driver")
    assert held(found) == {}
    assert found["__uids"] == f"{UID},{UID}"
    assert "-1" not in found["__segments"], "what was planted is there"


def test_every_number_is_tried_somewhere() -> None:
    here = Path(__file__).parent
    words = "".join(
        (here / f"{name}.py").read_text() for name in ("attacks", "attacks_own", "attacks_pair", "attack_driver")
    )
    tried = {int(number) for head in re.findall(r'"((?:\d\d(?:, )?)+) ', words) for number in head.split(", ")}
    assert ALL.keys() - tried - ELSEWHERE.keys() == set()
    for test in {test for tests in ELSEWHERE.values() for test in tests}:
        path, _, name = test.partition("::")
        body = ast.parse((here.parent / path).read_text()).body
        assert name in {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}, test
    assert len(re.findall(r'attempt\(f?"own: ', words)) >= 20
