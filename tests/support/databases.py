"""PostgreSQL and Redis on loopback, started by a test as a user without rights, with Debian's programs."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.waiting import until

_PROGRAMS = Path(__file__).resolve().parents[2] / ".venv" / "programs"
_USER = pwd.getpwnam("nobody").pw_uid  # initdb wants a user with a name


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _program(name: str, unpacked: str) -> Path:
    """The program; the test is skipped without it."""
    places = [*(Path(found) for found in [shutil.which(name)] if found), *sorted(_PROGRAMS.glob(unpacked))]
    places += sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not places:
        pytest.skip(f"{name} is not here: scripts/test_programs")
    return places[0]


def _environment(program: Path) -> dict[str, str]:
    libraries = (
        [str(each) for each in program.parents[1].glob("lib/*-linux-gnu")] if _PROGRAMS in program.parents else []
    )
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})}


def _as_user(folder: Path) -> dict[str, Any]:
    """Arguments of a process that runs as a user without rights, who owns the folder."""
    if os.getuid() != 0:
        return {}
    os.chown(folder, _USER, _USER)
    for parent in folder.parents:
        if parent.owner() == "root" and parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o711)
    return {"user": _USER, "group": _USER, "extra_groups": []}


@contextlib.contextmanager
def _running(command: list[str], folder: Path, env: dict[str, str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    def listens() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, **_as_user(folder))
    try:
        until(listens)
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis_server(folder: Path, port: int, password: str) -> Iterator[None]:
    """A Redis on this port, whose data is in the folder."""
    program = _program("redis-server", "redis/usr/bin/redis-server")
    folder.mkdir(exist_ok=True)
    words = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always"]
    with _running([str(program), *words, "--requirepass", password], folder, _environment(program), port):
        yield


def _postgres_program(name: str) -> Path:
    """Return a program of PostgreSQL, from the folder that has `initdb` itself: a link to it may have no siblings."""
    return _program("initdb", "postgresql/usr/lib/postgresql/*/bin/initdb").resolve().with_name(name)


def _run(command: list[str], folder: Path) -> None:
    """Run a program to its end, as the user who owns the folder."""
    env, user = _environment(Path(command[0])), _as_user(folder)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, **user, check=False)
    assert done.returncode == 0, done.stderr.decode()


@contextlib.contextmanager
def _serving(program: Path, folder: Path, port: int, *, durable: bool, connections: int) -> Iterator[str]:
    """A server on the data in a folder that takes connections; its address."""
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", f"max_connections={connections}"]
    settings += ["dynamic_shared_memory_type=mmap"]  # a killed server would leave its segments in /dev/shm
    settings += [] if durable else ["fsync=off"]
    command = [str(program), "-D", "data", "-p", str(port), *(word for each in settings for word in ("-c", each))]
    with _running(command, folder, _environment(program), port):
        until(lambda: b"ready to accept" in (folder / "log").read_bytes())
        yield f"postgresql://duty@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def postgres_server(
    folder: Path, port: int, password: str, *, durable: bool = False, connections: int = 100
) -> Iterator[str]:
    """A PostgreSQL on this port, whose data is in the folder; its address without the password.

    Unless it is durable, it leaves syncing to the system: its data survives its own end, not that of the machine.
    """
    initdb = _postgres_program("initdb")
    folder.mkdir(exist_ok=True)
    if not (folder / "data").exists():
        (folder / "password").write_text(password)
        words = ["-D", "data", "-U", "duty", "--auth=scram-sha-256", "--pwfile=password", "-E", "UTF8", "--no-sync"]
        _run([str(initdb), *words], folder)
    with _serving(initdb.with_name("postgres"), folder, port, durable=durable, connections=connections) as address:
        yield address


@contextlib.contextmanager
def pooler(server: str, folder: Path, port: int, password: str, **settings: str) -> Iterator[str]:
    """A PgBouncer in front of the PostgreSQL at that address; its own address without the password."""
    program = _program("pgbouncer", "pgbouncer/usr/sbin/pgbouncer")
    folder.mkdir()
    theirs = urlsplit(server)
    (folder / "users").write_text(f'"{theirs.username}" "{password}"\n')
    given = {"listen_addr": "127.0.0.1", "listen_port": str(port), "unix_socket_dir": "", "auth_type": "plain"}
    lines = [f"{name} = {value}" for name, value in {**given, "auth_file": "users", **settings}.items()]
    databases = ["[databases]", f"* = host=127.0.0.1 port={theirs.port}", "[pgbouncer]"]
    (folder / "pooler.ini").write_text("\n".join([*databases, *lines]))
    with _running([str(program), "pooler.ini"], folder, _environment(program), port):
        yield f"postgresql://{theirs.username}@127.0.0.1:{port}{theirs.path}"


@contextlib.contextmanager
def standby_of(
    primary: str, folder: Path, port: int, password: str, *, durable: bool = False, connections: int = 100
) -> Iterator[str]:
    """A standby of the PostgreSQL at that address, which streams from it; its own address without the password.

    It follows asynchronously until `demand_standby`. It needs as many connections as the primary has.
    """
    program = _postgres_program("pg_basebackup")
    folder.mkdir(exist_ok=True)
    source = primary.replace("@", f":{password}@")
    _run([str(program), "-d", source, "-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync"], folder)
    with _serving(program.with_name("postgres"), folder, port, durable=durable, connections=connections) as address:
        yield address


def demand_standby(primary: str) -> None:
    """Let a server acknowledge no commit before a standby has it on its disk; its address has the password.

    Call it after the start of the standby, or the standby has the setting too and waits for another one once promoted.
    """
    with psycopg.connect(primary, autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = '*'")
        connection.execute("select pg_reload_conf()")


def promote(standby: str) -> None:
    """Make a standby a primary, and wait until it is one; its address has the password."""
    with psycopg.connect(standby, autocommit=True) as connection:
        assert connection.execute("select pg_promote()").fetchone() == (True,)
