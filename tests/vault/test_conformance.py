"""Every kind of place shows what the kit asks, and so does the fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.vault import CHECKS
from tests.support.as_user import run_as_user
from tests.vault.rigs import RIGS
from tests.vault.user_driver import KINDS


@pytest.mark.parametrize("kind", RIGS)
@pytest.mark.parametrize("name", CHECKS)
def test_vault(name: str, kind: str, tmp_path: Path) -> None:
    CHECKS[name](RIGS[kind](tmp_path))


def test_the_kit_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.vault.user_driver")
    assert set(found) == {f"{kind}.{name}" for kind in KINDS for name in CHECKS}
    assert {name: problem for name, problem in found.items() if problem} == {}
