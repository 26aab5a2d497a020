"""The way outside in memory shows what the kit asks of every one."""

from __future__ import annotations

import pytest

from holdfast.testing.egress import CHECKS
from tests.egress.fake_rig import fake_rig


@pytest.mark.parametrize("name", CHECKS)
async def test_fake(name: str) -> None:
    async with fake_rig() as rig:
        await CHECKS[name](rig)
