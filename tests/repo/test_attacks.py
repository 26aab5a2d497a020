"""A hostile workspace gets nowhere, whoever takes the snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo.attacks import ATTACKS, Ground


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack(name: str, tmp_path: Path) -> None:
    await ATTACKS[name](Ground(tmp_path))
