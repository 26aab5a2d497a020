"""Every provider shows what the kit asks: in memory, in a sandbox, without one; as root and not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.hands import CHECKS, NEWS
from tests.hands.rigs import REAL, FakeRig, real
from tests.support.as_user import run_as_user


@pytest.mark.parametrize("name", CHECKS)
async def test_fake(name: str) -> None:
    await CHECKS[name](FakeRig())


@pytest.mark.parametrize("provider", REAL)
@pytest.mark.parametrize("name", CHECKS)
async def test_real(name: str, provider: str, tmp_path: Path) -> None:
    async with real(tmp_path, REAL[provider]) as rig:
        await CHECKS[name](rig)


@pytest.mark.parametrize("name", NEWS)
async def test_news_of_the_fake(name: str) -> None:
    await NEWS[name](FakeRig())


@pytest.mark.parametrize("provider", REAL)
@pytest.mark.parametrize("name", NEWS)
async def test_real_news(name: str, provider: str, tmp_path: Path) -> None:
    async with real(tmp_path, REAL[provider]) as rig:
        await NEWS[name](rig)


@pytest.mark.faults
def test_bubblewrap_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.hands.kit_driver", "bubblewrap")
    assert set(found) == {*CHECKS, *NEWS}
    assert {name: problem for name, problem in found.items() if problem} == {}
