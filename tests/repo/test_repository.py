"""Every repository shows what the kit asks: in memory, and in git with both kinds of names; as root and not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.repo.repositories import REPOSITORY_CHECKS
from tests.repo.repositories import RIGS


@pytest.mark.parametrize("kind", RIGS)
@pytest.mark.parametrize("name", REPOSITORY_CHECKS)
async def test_repository(name: str, kind: str, tmp_path: Path) -> None:
    await REPOSITORY_CHECKS[name](RIGS[kind](tmp_path))
