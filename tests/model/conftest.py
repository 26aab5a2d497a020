"""The model server of these tests, and one rig for each family."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.app.conftest import type_  # noqa: F401, the command line as tests type it
from tests.model.rigs import FAMILIES, Rig
from tests.support.fault_proxy import fault_proxy
from tests.support.model_server import ModelServer, Unavailable, model_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """The server, once for all tests."""
    try:
        with model_server(tmp_path_factory.mktemp("model-server")) as started:
            yield started
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(params=FAMILIES)
async def rig(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Rig]:
    """A session with a model of each family behind the proxy."""
    async with fault_proxy(server.port) as proxy:
        yield Rig(request.param, server, proxy)
