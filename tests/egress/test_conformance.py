"""The real way outside shows what the kit asks of every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.egress import CHECKS
from tests.egress.rigs import proxy_rig


@pytest.mark.parametrize("name", CHECKS)
async def test_proxy(name: str, tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        await CHECKS[name](rig)
