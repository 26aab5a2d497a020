"""Every source with the world behind it, for the kit and for the tests beside it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import psycopg
import redis

from holdfast.clock import SystemClock
from holdfast.sources.base import Offered, Source
from holdfast.sources.command import CommandSource, Output
from holdfast.sources.directory import DirectorySource
from holdfast.sources.fake import FakeSource
from holdfast.sources.http import HttpSource
from holdfast.sources.postgres import PostgresSource
from holdfast.sources.redis_stream import RedisSource
from holdfast.sources.settings import CommandSettings, DirectorySettings, HttpSettings, RedisSettings, SqlSettings
from holdfast.sources.sql import SqliteSource
from tests.support.databases import free_port, postgres_server, redis_server
from tests.support.receiver import Got, Receiver, Reply

PASSWORD = "T0PS3CRET"


async def run_here(command: str, env: dict[str, str], timeout_s: float, out_bytes: int) -> Output:
    """Run a command of a test."""
    done = await anyio.run_process(["sh", "-c", command], env={**os.environ, **env}, check=False)
    return Output(done.returncode, done.stdout[:out_bytes], done.stderr.decode(), len(done.stdout) > out_bytes)


class FakeRig:
    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        self.fake = FakeSource()

    def source(self) -> Source:
        return self.fake

    def add(self, name: str) -> None:
        self.fake.events.append(Offered(name, {"name": name}))

    def break_it(self) -> None:
        self.fake.down = True

    def mend(self) -> None:
        self.fake.down = False


class DirectoryRig:
    """Files that appear whole, by a rename, and are taken at once."""

    secrets: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "inbox"
        self.folder.mkdir()

    def source(self) -> Source:
        settings = DirectorySettings(path=str(self.folder), glob="**/*.txt", settle_s=0.0, tail_bytes=100)
        return DirectorySource(settings, SystemClock())

    def add(self, name: str) -> None:
        made = self.folder / f"of-{name}.part"
        made.write_text(name)
        made.rename(self.folder / f"of-{name}.txt")

    def break_it(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def mend(self) -> None:
        self.folder.with_name("away").rename(self.folder)


class CommandRig:
    """A command that prints a file: all of it, or what is after the cursor."""

    secrets: Sequence[str] = ()

    def __init__(self, folder: Path, cursor: bool) -> None:
        self.file = folder / "events.jsonl"
        self.file.touch()
        self.broken = folder / "broken"
        self._number = 0
        after = "${HOLDFAST_CURSOR:-0}" if cursor else "0"
        command = f"test ! -e {self.broken} && tail -n +$(({after} + 1)) {self.file}"
        field = "number" if cursor else ""
        self.settings = CommandSettings(command=command, key="name", cursor_field=field)

    def source(self) -> Source:
        return CommandSource(self.settings, run_here)

    def add(self, name: str) -> None:
        self._number += 1
        with open(self.file, "ab", buffering=0) as file:
            file.write(json.dumps({"name": name, "number": self._number}).encode() + b"\n")

    def break_it(self) -> None:
        self.broken.touch()

    def mend(self) -> None:
        self.broken.unlink()


class _Feed(Receiver):
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        super().__init__()

    def answer(self, got: Got) -> Reply:
        after = int(got.path.partition("since=")[2] or 0)
        body = json.dumps({"found": {"items": [each for each in self.events if each["id"] > after]}})
        return Reply(200 if got.headers.get("x-token") == PASSWORD else 401, {}, body.encode())


class HttpRig:
    """A feed of a web server, with a cursor in the address or without."""

    secrets = (PASSWORD,)

    def __init__(self, cursor: bool) -> None:
        self.feed = _Feed()
        self.settings = HttpSettings(
            url=f"{self.feed.url}/feed",
            secret_headers={"x-token": "token"},
            items="found.items",
            key="name",
            cursor_field="id" if cursor else "",
            cursor_param="since" if cursor else "",
        )

    def source(self) -> Source:
        return HttpSource(self.settings, {"token": PASSWORD}.__getitem__)

    def add(self, name: str) -> None:
        self.feed.events.append({"name": name, "id": len(self.feed.events) + 1})

    def break_it(self) -> None:
        self.feed.planned.append(Reply(500, {}, PASSWORD.encode()))

    def mend(self) -> None:
        """The plan is used up."""


class SqliteRig:
    secrets: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.database = folder / "events.db"
        with contextlib.closing(sqlite3.connect(self.database)) as made:
            made.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, body TEXT)")

    def source(self, **changed: Any) -> Source:
        query = "SELECT id, body FROM events WHERE id > :cursor ORDER BY id"
        return SqliteSource(SqlSettings(**{"database": str(self.database), "query": query, **changed}))

    def add(self, name: str) -> None:
        with contextlib.closing(sqlite3.connect(self.database)) as writer, writer:
            writer.execute("INSERT INTO events (body) VALUES (?)", (name,))

    def break_it(self) -> None:
        self.database.rename(self.database.with_name("away"))

    def mend(self) -> None:
        self.database.with_name("away").rename(self.database)


class PostgresRig:
    secrets = (PASSWORD,)

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._writer = psycopg.connect(address, password=PASSWORD, autocommit=True)
        self._writer.execute("DROP TABLE IF EXISTS events")
        self._writer.execute("CREATE TABLE events (id bigserial PRIMARY KEY, body text)")

    def source(self, **changed: Any) -> Source:
        query = "SELECT id, body FROM events WHERE id > :cursor ORDER BY id"
        return PostgresSource(SqlSettings(**{"database": self.address, "query": query, **changed}), PASSWORD)

    def add(self, name: str) -> None:
        with self._lock:
            self._writer.execute("INSERT INTO events (body) VALUES (%s)", (name,))

    def break_it(self) -> None:
        self._writer.execute("ALTER TABLE events RENAME TO away")

    def mend(self) -> None:
        self._writer.execute("ALTER TABLE away RENAME TO events")

    def close(self) -> None:
        self._writer.close()


class RedisRig:
    secrets = (PASSWORD,)

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = redis.Redis(port=port, password=PASSWORD)
        self.client.flushall()

    def source(self) -> Source:
        settings = RedisSettings(url=f"redis://127.0.0.1:{self.port}/0", stream="events")
        return RedisSource(settings, PASSWORD)

    def add(self, name: str) -> None:
        self.client.xadd("events", {"body": name})

    def break_it(self) -> None:
        self.client.rename("events", "away") if self.client.exists("events") else None
        self.client.set("events", "not a stream")

    def mend(self) -> None:
        self.client.delete("events")
        self.client.rename("away", "events")

    def close(self) -> None:
        self.client.close()


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL for the tests of a file."""
    with postgres_server(folder / "postgres", free_port(), PASSWORD) as address:
        yield address


@contextlib.contextmanager
def redis_at(folder: Path) -> Iterator[int]:
    """A Redis for the tests of a file."""
    port = free_port()
    with redis_server(folder / "redis", port, PASSWORD):
        yield port


LOCAL: dict[str, Callable[[Path], Any]] = {
    "fake": lambda folder: FakeRig(),
    "directory": DirectoryRig,
    "command": lambda folder: CommandRig(folder, cursor=False),
    "command-cursor": lambda folder: CommandRig(folder, cursor=True),
    "http": lambda folder: HttpRig(cursor=False),
    "http-cursor": lambda folder: HttpRig(cursor=True),
    "sqlite": SqliteRig,
}
"""Rigs that need no server of their own."""
