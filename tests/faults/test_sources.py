"""Workers that are killed while they read sources of events: each entry is in the duty's log exactly once."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.facts.duty import SourcePolled, TriggerOffered
from tests.faults.cli import finished, holdfast
from tests.sources.rigs import (
    PASSWORD,
    CommandRig,
    DirectoryRig,
    HttpRig,
    PostgresRig,
    RedisRig,
    SqliteRig,
    postgres,
    redis_at,
)
from tests.support.waiting import until

QUERY = "SELECT id, body AS name FROM events WHERE id > :cursor ORDER BY id"

DUTY = """
name = "reader"
goal = "Handle the events."
queue = 10000
batch = 1000
batch_wait = "1d"
"""
"""A duty whose batch is never full, so that the time of the test goes to its sources."""

Entry = Callable[[str], None]
"""Adds an entry of that name to a source."""


def directory(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = DirectoryRig(base)
    return rig.add, "directory", {"path": str(rig.folder), "glob": "**/*.txt", "settle_s": 0.0}


def command(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = CommandRig(base, cursor=True)
    return rig.add, "command", msgspec.to_builtins(rig.settings)


def http(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = HttpRig(cursor=True)
    stack.enter_context(rig.feed)
    return rig.add, "http", msgspec.to_builtins(rig.settings)


def sqlite(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = SqliteRig(base)
    return rig.add, "sql", {"database": str(rig.database), "query": QUERY}


def postgresql(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = stack.enter_context(closing(PostgresRig(stack.enter_context(postgres(base)))))
    return rig.add, "sql", {"database": rig.address, "query": QUERY, "secret": "token"}


def redis(base: Path, stack: ExitStack) -> tuple[Entry, str, Mapping[str, Any]]:
    rig = stack.enter_context(closing(RedisRig(stack.enter_context(redis_at(base)))))
    url = f"redis://127.0.0.1:{rig.port}/0"
    return rig.add, "redis", {"url": url, "stream": "events", "secret": "token", "start": "beginning"}


SOURCES = {each.__name__: each for each in (directory, command, http, sqlite, postgresql, redis)}


def toml(values: Mapping[str, Any]) -> str:
    """An inline table."""
    shown = (
        f"{key} = {toml(value) if isinstance(value, dict) else json.dumps(value)}" for key, value in values.items()
    )
    return f"{{ {', '.join(shown)} }}"


class Trial:
    """A duty in a home of its own that reads these sources, and workers that die."""

    def __init__(self, base: Path, names: tuple[str, ...], seed: int, stack: ExitStack) -> None:
        self.home, self.random, self.added = base / "home", random.Random(seed), 0
        self.sources: dict[str, Entry] = {}
        text = DUTY
        for name in names:
            self.sources[name], kind, settings = SOURCES[name](base, stack)
            text += f'[[trigger]]\nname = "{name}"\nkind = "{kind}"\nevery_s = 1.0\nsettings = {toml(settings)}\n'
        (base / "duty.toml").write_text(text)
        (base / "model.json").write_text('{"turns": [{"text": "Done."}]}')
        words = (
            "duty",
            "add",
            str(base / "duty.toml"),
            "--yes",
            "--model",
            f"scripted:{base / 'model.json'}",
            "--no-sandbox",
        )
        code, _, err = finished(holdfast(self.home, *words))
        assert code == 0, err

    def entry(self) -> None:
        """Add an entry to each source."""
        self.added += 1
        for add in self.sources.values():
            add(f"entry-{self.added}")

    def polls(self) -> int:
        return self.count("source.polled")

    def count(self, kind: str) -> int:
        with closing(sqlite3.connect(f"file:{self.home / 'holdfast.db'}?mode=ro", uri=True)) as sql:
            return int(sql.execute("select count(*) from events where type = ?", (kind,)).fetchone()[0])

    def worker(self) -> subprocess.Popen[str]:
        """A worker that has polled."""
        before, process = self.polls(), holdfast(self.home, "worker")
        until(lambda: self.polls() > before or process.poll() is not None)
        return process

    def die(self) -> None:
        """Kill a worker at a moment drawn by chance, while entries arrive."""
        process = self.worker()
        for _ in range(self.random.randrange(2, 6)):
            self.entry()
            threading.Event().wait(self.random.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL

    async def facts(self) -> list[Any]:
        """The facts of the duty."""
        async with open_runtime(Settings(home=str(self.home))) as runtime:
            row = await runtime.store.find("reader")
            return [event.fact for event in await runtime.store.read(row.session_id)]


async def survives(trial: Trial, kills: int) -> None:
    """Kill that many workers; then every entry is in the log once, and no poll failed."""
    for _ in range(kills):
        trial.die()
    process, wanted = trial.worker(), trial.added * len(trial.sources)
    until(lambda: trial.count("trigger.offered") >= wanted)
    before = trial.polls()
    until(lambda: trial.polls() >= before + 2 * len(trial.sources))
    process.terminate()
    process.communicate()
    facts = await trial.facts()
    entries = [f"entry-{number + 1}" for number in range(trial.added)]
    for name in trial.sources:
        offers = [fact for fact in facts if isinstance(fact, TriggerOffered) and fact.trigger == name]
        found = [str(each.data.get("name") or each.data.get("body") or each.data["path"]) for each in offers]
        assert Counter(text.removeprefix("of-").removesuffix(".txt") for text in found) == Counter(entries), name
        polled = [fact for fact in facts if isinstance(fact, SourcePolled) and fact.trigger == name]
        assert polled
        assert {fact.failure for fact in polled} == {""}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, and the secret of the servers. Commands run without a sandbox, since one has a /tmp of its own."""
    config = tmp_path / "config" / "holdfast"
    config.mkdir(parents=True)
    (config / "holdfast.toml").write_text('[secrets.token]\nfrom = "env:TOKEN"\nhosts = ["source.invalid"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TOKEN", PASSWORD)
    tmp_path.chmod(0o711)
    made = tmp_path / "base"
    made.mkdir(mode=0o755)
    return made


async def test_killed_workers_take_each_entry_once(base: Path) -> None:
    with ExitStack() as stack:
        await survives(Trial(base, ("directory", "http", "sqlite"), seed=1, stack=stack), kills=3)


@pytest.mark.faults
@pytest.mark.parametrize("name", SOURCES)
async def test_workers_killed_twenty_times_take_each_entry_once(base: Path, name: str) -> None:
    with ExitStack() as stack:
        await survives(Trial(base, (name,), seed=2, stack=stack), kills=20)
