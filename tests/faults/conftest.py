"""What the tests of deaths share: one nursery, and the end of every supervisor that a test left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.brains import Nursery, nursery
from tests.faults.victims import end_supervisors


@pytest.fixture(scope="session")
def brains() -> Iterator[Nursery]:
    """The nursery of this run."""
    with nursery() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_supervisor_stays(tmp_path: Path) -> Iterator[None]:
    """Hands of a brain that died while making them outlive the test by two minutes unless ended."""
    yield
    end_supervisors(tmp_path)
