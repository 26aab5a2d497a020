"""Every check of the kit on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.log import CHECKS
from tests.log.rigs import RIGS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("store", RIGS)
async def test_store(store: str, check: str, holdfast_home: Path) -> None:
    async with RIGS[store](holdfast_home) as rig:
        await CHECKS[check](rig)
