"""The same deaths when Holdfast is started by an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.lanes import none_broken
from tests.support.as_user import run_as_user


@pytest.mark.faults
def test_deaths_as_an_ordinary_user(tmp_path: Path) -> None:
    said = run_as_user(tmp_path, "tests.faults.user_driver")
    assert len(said) == 10
    none_broken({case: broken for case, broken in said.items() if broken}, "as an ordinary user")
