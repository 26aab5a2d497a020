"""Real hands, of every kind that needs no engine, and those where the kind makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hands.rigs import REAL, RealRig, real


@pytest.fixture(params=REAL)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RealRig]:
    """Hands of each kind."""
    async with real(tmp_path, REAL[request.param]) as made:
        yield made


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[RealRig]:
    """Where the provider makes no difference."""
    async with real(tmp_path, REAL["unsandboxed"]) as made:
        yield made
