"""What the tests of the server share: one server for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.conftest import type_ as type_
from tests.serve.served import Served, quick, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model answers at once."""
    folder = tmp_path_factory.mktemp("served")
    folder.chmod(0o711)
    with serving(folder / "home", model=quick(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def admin(served: Served) -> str:
    """The API key of an admin."""
    return served.key("ada", "admin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a session may work in."""
    path = tmp_path_factory.mktemp("work")
    path.chmod(0o777)
    return path
