"""A hostile program inside gets nothing out but what the policy lets through: as root's hands, and as a user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.egress.attempt_driver import LAUNCHER, attempts
from tests.support.as_user import UID, run_as_user


def judge(found: dict[str, Any]) -> None:
    """Every wall held; the secrets arrived where they belong, and nowhere else."""
    assert {name: seen for name, seen in found.items() if name[:2] != "__" and seen[0] != "blocked"} == {}
    assert found["__leaks"] == []
    assert found["__smuggled"] == []
    assert found["__mistakes"] == ""
    assert found["__arrived"] == ["api.test git", "api.test key"]
    assert len([name for name in found if name[:2] != "__"]) >= 150
    refused = [seen for seen in found["__notes"]["seen"] if seen["verdict"] == "refused"]
    assert {"evil.test", "api.test", "bad4.test"} <= {seen["host"] for seen in refused}
    assert [seen["secret"] for seen in found["__notes"]["seen"] if seen["verdict"] == "held"] == ["held"]


async def test_nothing_gets_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", LAUNCHER)
    found = await attempts(tmp_path)
    judge(found)
    assert found["__uid"] != 0


def test_nothing_gets_out_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.egress.attempt_driver")
    judge(found)
    assert found["__uid"] == UID
