"""What `doctor` finds about a PostgreSQL server: whether acknowledged commits are safe there, and its clock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import LogUnavailable
from holdfast.log.postgres import health
from holdfast.log.postgres.health import examine
from holdfast.log.postgres.migrate import migrate
from tests.support.databases import free_port, postgres_server
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


def test_a_standby_that_follows_asynchronously(tmp_path: Path) -> None:
    program = shutil.which("pg_receivewal") or next(Path("/usr/lib/postgresql").glob("*/bin/pg_receivewal"), None)
    if program is None:
        pytest.skip("pg_receivewal is not here: apt-get install postgresql-client")
    (tmp_path / "standby").mkdir()
    port = free_port()
    with postgres_server(tmp_path / "primary", port, PASSWORD, durable=True) as plain:
        address = plain.replace("@", f":{PASSWORD}@")
        migrate(address)
        words = ("-h", "127.0.0.1", "-p", str(port), "-U", "duty", "-D", str(tmp_path / "standby"))
        with subprocess.Popen([str(program), *words], env={**os.environ, "PGPASSWORD": PASSWORD}) as standby:
            try:
                until(lambda: found(address))
                (loses,) = found(address)
                assert "1 of its standbys follow asynchronously" in loses
                with psycopg.connect(address, autocommit=True) as connection:
                    connection.execute("alter system set synchronous_standby_names = '*'")
                    connection.execute("select pg_reload_conf()")
                until(lambda: not found(address))
            finally:
                standby.kill()
