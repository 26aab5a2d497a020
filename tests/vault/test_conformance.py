"""Every kind of place shows what the kit asks, and so does the fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.vault import CHECKS
from tests.vault.rigs import RIGS


@pytest.mark.parametrize("kind", RIGS)
@pytest.mark.parametrize("name", CHECKS)
def test_vault(name: str, kind: str, tmp_path: Path) -> None:
    CHECKS[name](RIGS[kind](tmp_path))
