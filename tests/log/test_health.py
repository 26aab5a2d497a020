"""What `doctor` finds about a PostgreSQL server: whether acknowledged commits are safe there, and its clock."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from operator import attrgetter
from pathlib import Path

import anyio.to_thread
import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import LogUnavailable
from holdfast.facts.codec import Event
from holdfast.log.postgres import health
from holdfast.log.postgres.connect import FOLDER
from holdfast.log.postgres.health import examine
from holdfast.log.postgres.migrate import check, migrate
from holdfast.testing.log import Scenario
from tests.log.rigs import PostgresRig, open_postgres, port_of
from tests.support.databases import demand_standby, free_port, pooler, postgres_server, promote, standby_of
from tests.support.waiting import until

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


class Off(SystemClock):
    """A clock that is off by some seconds."""

    def __init__(self, off_s: float) -> None:
        self._off_s = off_s

    def now_us(self) -> int:
        return super().now_us() + int(self._off_s * 1e6)


def found(address: str, off_s: float = 0.0) -> list[str]:
    """The problems of a server, by the clock of a machine."""
    version, problems = examine(address, Off(off_s))
    assert version.startswith("PostgreSQL ")
    assert all(each.fix for each in problems)
    return [each.message for each in problems]


def test_what_a_crash_loses_and_clocks_that_disagree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server(tmp_path / "loses", free_port(), PASSWORD) as plain:
        address = plain.replace("@", f":{PASSWORD}@")
        migrate(address)
        (loses,) = found(address)
        assert "a crash of its machine may lose" in loses
    with pytest.raises(LogUnavailable, match="cannot be reached"):
        examine(address, SystemClock())
    with postgres_server(tmp_path / "keeps", free_port(), PASSWORD, durable=True) as plain:
        address = plain.replace("@", f":{PASSWORD}@")
        migrate(address)
        assert found(address) == []
        (ahead,) = found(address, 3600.0)
        assert "3,600 s ahead of that of the server" in ahead
        (behind,) = found(address, -3600.0)
        assert "3,600 s behind that of the server" in behind
        monkeypatch.setattr(health, "CONNECTIONS_MIN", 1000)
        (few,) = found(address)
        assert "connections left" in few


def test_a_pooler_is_refused(tmp_path: Path) -> None:
    """Also one that drops the settings of connections: `migrate` would make tables that no process finds."""
    with postgres_server(tmp_path / "server", free_port(), PASSWORD) as server:
        for number, (mode, ignored) in enumerate(product(("session", "transaction", "statement"), ("", "options"))):
            words = {"pool_mode": mode, "ignore_startup_parameters": ignored}
            with pooler(server, tmp_path / f"pooler{number}", free_port(), PASSWORD, **words) as plain:
                for use in (check, migrate):
                    with pytest.raises(LogUnavailable, match=r"through a pooler.*nothing was written"):
                        use(plain.replace("@", f":{PASSWORD}@"))
        assert migrate(server.replace("@", f":{PASSWORD}@"))[0] == 0


async def test_a_standby_from_refused_to_promoted(holdfast_home: Path, tmp_path: Path) -> None:
    """An asynchronous standby is a problem. A synchronous one has all that was acknowledged when its primary dies."""
    with ExitStack() as primary:
        plain = primary.enter_context(postgres_server(tmp_path / "primary", free_port(), PASSWORD, durable=True))
        address = plain.replace("@", f":{PASSWORD}@")
        migrate(address)
        with standby_of(plain, tmp_path / "standby", free_port(), PASSWORD, durable=True) as follows:
            standby = follows.replace("@", f":{PASSWORD}@")
            until(lambda: found(address))
            (loses,) = found(address)
            assert "1 of its standbys follow asynchronously" in loses
            with pytest.raises(LogUnavailable, match="read-only, such as a standby"):
                check(standby)
            demand_standby(address)
            until(lambda: not found(address))
            with psycopg.connect(address, autocommit=True) as sql:
                sql.execute("alter role duty set synchronous_commit = local")
                assert "follow asynchronously" in found(address)[0]
                sql.execute("alter role duty reset synchronous_commit")
            both = f"{address.removesuffix('/postgres')},127.0.0.1:{port_of(standby)}/postgres"
            await _fail_over(f"{both}?target_session_attrs=read-write", holdfast_home, primary, standby)
            assert found(standby) == []


async def _fail_over(address: str, home: Path, primary: ExitStack, standby: str) -> None:
    """Append to four sessions while the primary is killed and the standby is promoted; all is there once."""
    async with await open_postgres(address, FOLDER, home) as store:
        case = Scenario(PostgresRig(address, FOLDER, home, store))
        acknowledged, ended = list[Event](), anyio.Event()

        async def write(session_id: str) -> None:
            await case.open(session_id)
            lease = await case.take(session_id)
            while not ended.is_set():
                acknowledged.extend(await case.append(lease, case.result()))

        async def more() -> None:
            count = len(acknowledged) + 100
            await anyio.to_thread.run_sync(until, lambda: len(acknowledged) >= count)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(write, f"ses_{number}")
            await more()
            await anyio.to_thread.run_sync(primary.close)
            await anyio.to_thread.run_sync(promote, standby)
            await more()
            ended.set()
        events = [event for number in range(4) for event in (await store.read(f"ses_{number}"))[2:]]
        assert sorted(events, key=attrgetter("id")) == sorted(acknowledged, key=attrgetter("id"))
        await case.whole()
