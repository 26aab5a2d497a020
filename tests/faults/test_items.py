"""A run over a list that is killed again and again: results once, poison items quarantined, effects at most once."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.facts.codec import Event
from holdfast.facts.items import ItemQuarantined
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from tests.faults.cli import finished, holdfast
from tests.faults.victims import end_supervisors
from tests.support.waiting import until

WORKERS = 4
TRIES = 2


class Trial:
    """One list in one home: `poison` of its `items` can never be done. Each item's tool leaves one line in a file."""

    def __init__(self, base: Path, items: int, poison: int, seed: int) -> None:
        self.home, self.out = base / "home", base / "results.jsonl"
        self.random = random.Random(seed)
        self.keys = [f"item-{number}" for number in range(items)]
        self.poisoned = set(self.random.sample(self.keys, poison))
        self.list = base / "list.jsonl"
        words = {key: "poison" if key in self.poisoned else "good" for key in self.keys}
        self.list.write_text("".join(json.dumps({"id": key, "word": words[key]}) + "\n" for key in self.keys))
        self.script = base / "script.json"
        effect = {"name": "bash", "input": {"command": "echo once >> effect"}}
        self.script.write_text(
            json.dumps(
                {
                    "turns": [{"text": "I work.", "tool_calls": [effect]}, {"text": "fine"}],
                    "cases": [{"contains": "poison", "turns": [{"text": "no", "error": "refusal"}]}],
                }
            )
        )

    def begin(self) -> subprocess.Popen[str]:
        """The command of the user, which is the same at each try."""
        words = [
            *("items", "run", str(self.list), "--each", "Do {id}, which is {word}.", "--key", "id"),
            *("--model", f"scripted:{self.script}", "--no-sandbox", "--session-id", "r", "--out", str(self.out)),
            *("--workers", str(WORKERS), "--tries", str(TRIES), "--every", "5", "--max-quarantine", "20%", "--plain"),
        ]
        return holdfast(self.home, *words)

    def events(self) -> int:
        """The number of events in the log."""
        try:
            with sqlite3.connect(f"file:{self.home / 'holdfast.db'}?mode=ro", uri=True) as sql:
                return int(sql.execute("select count(*) from events").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def look(self) -> list[str]:
        """The keys in the output, which is valid at every moment: whole lines of JSON, no key twice."""
        data = self.out.read_bytes() if self.out.exists() else b""
        assert not data or data.endswith(b"\n")
        keys = [json.loads(line)["key"] for line in data.splitlines()]
        assert len(keys) == len(set(keys))
        return keys

    def die(self, more: int) -> bool:
        """Run until the log has that many more events, then kill everything; False if the run ended before."""
        process = self.begin()
        wanted = self.events() + more

        def reached() -> bool:
            self.look()
            return process.poll() is not None or self.events() >= wanted

        until(reached)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.end_hands()
        return process.returncode == -signal.SIGKILL

    def end_hands(self) -> None:
        """Kill every supervisor. Their agents, which end with them, remove folders meanwhile."""
        ended = False
        while not ended:
            with suppress(FileNotFoundError):
                end_supervisors(self.home.parent)
                ended = True

    async def logs(self) -> dict[str, list[Event]]:
        """All sessions with their events."""
        async with open_runtime(Settings(home=str(self.home))) as runtime:
            return {row.session_id: await runtime.store.read(row.session_id) for row in await runtime.store.sessions()}


async def survives(trial: Trial, kills: int) -> None:
    """Kill the run that often at random moments; at its end, every promise holds."""
    died = 0
    each = max(2, len(trial.keys) * 14 // kills)
    for _ in range(kills):
        died += trial.die(trial.random.randrange(1, 2 * each))
    code, _, err = finished(trial.begin())
    assert code == 0, err
    assert died >= kills // 2

    good = set(trial.keys) - trial.poisoned
    lines = [json.loads(line) for line in trial.out.read_text().splitlines()]
    assert Counter(line["key"] for line in lines) == Counter(good)
    assert {line["result"] for line in lines} == {"fine"}

    logs = await trial.logs()
    (run,) = (name for name, events in logs.items() if getattr(events[0].fact, "items", None))
    quarantined = {event.fact.key: event.fact for event in logs[run] if isinstance(event.fact, ItemQuarantined)}
    assert quarantined.keys() == trial.poisoned
    assert {(fact.attempt, fact.reason) for fact in quarantined.values()} == {(TRIES, "the model refused")}

    effects = [path.read_text() for path in (trial.home / "workspaces").glob("*/effect")]
    assert set(effects) == {"once\n"}
    assert len(effects) <= len(good)

    facts = [event.fact for events in logs.values() for event in events]
    asked = sum(isinstance(fact, ModelRequestStart) for fact in facts)
    lost = sum(isinstance(fact, ModelRequestEnd) and fact.outcome == "presumed" for fact in facts)
    needed = 2 * len(good) + TRIES * len(trial.poisoned)
    assert asked - needed == lost
    assert lost <= died * WORKERS


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path) -> Iterator[None]:
    yield
    end_supervisors(tmp_path)


async def test_a_killed_run_has_each_result_once(tmp_path: Path) -> None:
    await survives(Trial(tmp_path, items=8, poison=1, seed=1), kills=4)


@pytest.mark.faults
async def test_a_long_run_killed_a_hundred_times(tmp_path: Path) -> None:
    await survives(Trial(tmp_path, items=200, poison=7, seed=2), kills=100)
