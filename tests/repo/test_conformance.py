"""Every shelf shows what the kit asks: in memory and in git; as root and not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.repo import CHECKS
from tests.repo.attacks import ATTACKS
from tests.repo.rigs import RIGS
from tests.repo.shared_rig import SharedRig
from tests.support.as_user import run_as_user


@pytest.mark.parametrize("kind", [*RIGS, "shared"])
@pytest.mark.parametrize("name", CHECKS)
async def test_shelf(name: str, kind: str, tmp_path: Path) -> None:
    await CHECKS[name]({**RIGS, "shared": SharedRig}[kind](tmp_path))


@pytest.mark.faults
def test_shadow_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.repo.user_driver")
    assert set(found) == {*CHECKS, *ATTACKS}
    assert {name: problem for name, problem in found.items() if problem} == {}
