"""What the tests of the server share: one server for the tests of a file."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.app.conftest import type_ as type_
from tests.serve.served import Served, quick, serving


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Bound a test with a browser, before the limit of all tests ends the run without a reason."""
    browser = getattr(item, "funcargs", {}).get("chromium")
    if browser is None:
        return (yield)
    from tests.serve.browser import bounded  # most tests need no driver of a browser

    with bounded(browser, 0.75 * float(item.config.getini("faulthandler_timeout"))):
        return (yield)


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
