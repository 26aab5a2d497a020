"""Every source shows what the kit asks, the databases as real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.sources import SOURCE_CHECKS
from tests.sources.rigs import LOCAL, PostgresRig, RedisRig, postgres, redis_at


@pytest.fixture(scope="module")
def postgres_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres(tmp_path_factory.mktemp("postgres")) as address:
        yield address


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_at(tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("name", SOURCE_CHECKS)
async def test_source(name: str, kind: str, tmp_path: Path) -> None:
    rig = LOCAL[kind](tmp_path)
    await SOURCE_CHECKS[name](rig)


@pytest.mark.parametrize("name", SOURCE_CHECKS)
async def test_postgres(name: str, postgres_address: str) -> None:
    rig = PostgresRig(postgres_address)
    try:
        await SOURCE_CHECKS[name](rig)
    finally:
        rig.close()


@pytest.mark.parametrize("name", SOURCE_CHECKS)
async def test_redis(name: str, redis_port: int) -> None:
    rig = RedisRig(redis_port)
    try:
        await SOURCE_CHECKS[name](rig)
    finally:
        rig.close()
