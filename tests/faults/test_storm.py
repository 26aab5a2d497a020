"""Many sessions with commands, files, jobs, children, approvals, and compactions, while their processes are killed.

Workers, supervisors, proxies, and commands that answer are killed, or stopped for a moment, until the last strike; then
every session comes to its end. No effect happens twice, nothing acknowledged is lost, no cap is exceeded, and nothing
that belongs to the home is left over.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from holdfast.app.compose import PROGRAM, Runtime, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Agent, Destination, EgressPolicy, Limits, Rule, SessionCreated, Workspace
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.hands.host import run_directory
from holdfast.log.verify import verify
from tests.app.families import money, stands, working
from tests.app.terminal import spawn
from tests.faults.cli import holdfast
from tests.faults.deaths import pass_time
from tests.faults.kept import ASKED, COMPACTED, policy
from tests.faults.story import EFFECTS, FINISH, SHORT, Story, effect, story, turn, write
from tests.faults.victims import signal_process, supervisors

WORKERS = 3
FEW = 8, 8
MANY = 500, 400
"""Strikes, and sessions that are due at once."""

LEFT_S = 300.0
"""After so long nothing of a killed process is left."""

PATIENCE_S = 3_600.0

JOBS = story(
    turn("I begin.", effect("one")),
    turn(
        "", ("job_start", {"name": "long", "command": f"echo two >> {EFFECTS}; sleep 0.4; echo end", "timeout_s": 60})
    ),
    turn("", write("notes.md", "# Notes\n")),
    turn("", ("job_wait", {"name": "long", "timeout_s": 30})),
    turn("", effect("three")),
    keys=("one", "two", "three"),
)
ASKS = story(
    turn("I begin.", effect("one")),
    turn("May I?", effect(ASKED)),
    turn("", write("notes.md", "# Notes\n"), write("part.txt", "part\n")),
    FINISH,
    keys=("one", ASKED),
)
FAMILY = story(
    turn("I split it.", ("spawn", {"goal": "left", "name": "left", "tools": ["read"]}), effect("one")),
    turn("", ("wait_for_children", {})),
    turn("", effect("two")),
    keys=("one", "two"),
)
OUTSIDE = story(
    turn("I begin.", effect("one")),
    turn("", ("bash", {"command": "curl -sS -m 5 http://other.test/; echo asked"})),
    turn("", effect("two", "; curl -sS -m 5 http://docs.test/ || true; sleep 0.3")),
    turn("", effect("three")),
    keys=("one", "two", "three"),
)
STORIES = {"short": SHORT, "jobs": JOBS, "asks": ASKS, "family": FAMILY, "compacts": COMPACTED, "outside": OUTSIDE}
TOOLS = {
    "jobs": ("bash", "write", "job_start", "job_wait", "job_output", "job_stop"),
    "family": ("bash", "read", "spawn", "wait_for_children"),
}
RULES = (Rule("bash", "ask", match=f"*did {ASKED}*"),)


class Storm:
    """One home with that many sessions, and what strikes it."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.chance = random.Random(seed)
        self.workers: list[subprocess.Popen[str]] = []
        self.kinds: dict[str, str] = {}
        self.struck: Counter[str] = Counter()
        self.hands: set[str] = set()
        self.home.mkdir(mode=0o711)
        for kind, told in STORIES.items():
            (self.home / f"{kind}.json").write_text(json.dumps(told.script))

    async def open(self, count: int) -> None:
        """Open so many sessions, all due at once."""
        async with open_runtime(Settings(home=str(self.home))) as runtime:
            for number in range(count):
                kind = list(STORIES)[number % len(STORIES)]
                self.kinds[await self._open_one(runtime, kind, sandbox=kind == "outside" or number % 2 == 0)] = kind

    async def _open_one(self, runtime: Runtime, kind: str, *, sandbox: bool) -> str:
        session_id = runtime.intake.new_session_id()
        workspace = runtime.home.workspaces / session_id
        workspace.mkdir(mode=0o755)
        model = f"scripted:{self.home / f'{kind}.json'}"
        agent = Agent(model=model, rules=RULES if kind == "asks" else ())
        if kind in TOOLS:
            agent = Agent(model=model, tools=TOOLS[kind])
        limits = Limits(budget_pico=STORIES[kind].budget_pico * 20)
        if kind == "compacts":
            limits = Limits(budget_pico=STORIES[kind].budget_pico * 20, context=policy("compaction"))
        created = SessionCreated(
            goal="Count.",
            agent=agent,
            workspace=Workspace(str(workspace), True, "", "sandbox" if sandbox else "none"),
            limits=limits,
            accounts=(session_id,),
            egress=EgressPolicy(allow=(Destination("docs.test"),)) if kind == "outside" else EgressPolicy(),
            program=PROGRAM,
        )
        await runtime.intake.open(session_id, created)
        return session_id

    def staffed(self) -> None:
        """See to it that all workers run; one that ended by itself ended with a sentence."""
        for worker in [each for each in self.workers if each.poll() is not None]:
            out, err = worker.communicate()
            assert worker.returncode == -signal.SIGKILL, f"a worker ended with {worker.returncode}: {out} {err}"
            self.workers.remove(worker)
        while len(self.workers) < WORKERS:
            self.workers.append(spawn("worker", "--home", self.home, stderr=subprocess.PIPE))

    def strike(self) -> bool:
        """Strike once, at a random moment; False when there was nobody to strike."""
        pass_time(self.chance.uniform(0.05, 0.5))
        self.hands |= {folder.name for folder in self.home.glob("hands/hnd_*")}
        way = self.chance.choice(("worker", "worker", "supervisor", "supervisor", "proxy", "stop", "answer"))
        hit = getattr(self, f"_{way}")()
        self.struck[way] += hit
        return bool(hit)

    def _worker(self) -> bool:
        self.chance.choice(self.workers).kill()
        return True

    def _stop(self) -> bool:
        worker = self.chance.choice(self.workers)
        worker.send_signal(signal.SIGSTOP)
        pass_time(self.chance.uniform(0.1, 1.0))
        worker.send_signal(signal.SIGCONT)
        return True

    def _supervisor(self) -> bool:
        found = list(supervisors(self.home).values())
        return bool(found) and signal_process(self.chance.choice(found), signal.SIGKILL)

    def _proxy(self) -> bool:
        found = [pid for pid, words in processes(self.home).items() if "holdfast.egress" in words]
        return bool(found) and signal_process(self.chance.choice(found), signal.SIGKILL)

    def _answer(self) -> bool:
        items = anyio.run(self._items)
        if not items:
            return False
        command = holdfast(self.home, "approve", self.chance.choice(items))
        pass_time(self.chance.uniform(0.1, 1.0))
        command.kill()
        command.communicate()
        return True

    async def _items(self) -> list[str]:
        async with open_runtime(Settings(home=str(self.home))) as runtime:
            return [item.item_id for item in await runtime.store.items() if item.status == "open"]

    async def answer_all(self) -> None:
        """Approve what waits for a person."""
        async with open_runtime(Settings(home=str(self.home))) as runtime:
            for item in await runtime.store.items():
                if item.status == "open":
                    try:
                        await runtime.intake.approve(item, "go on")
                    except HoldfastError:
                        continue  # answered meanwhile

    def unfinished(self) -> int:
        """How many sessions have not ended."""
        counts = stands(self.home)
        return sum(counts[each] for each in ("runnable", "running", "parked"))


@contextmanager
def storm(home: Path, seed: int) -> Iterator[Storm]:
    """A storm that leaves no worker behind."""
    made = Storm(home, seed)
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in made.workers:
            worker.communicate()


def processes(home: Path) -> dict[int, str]:
    """Processes that name the home in their command line, or have a file in it open; this one left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            files = [os.readlink(each) for each in (entry / "fd").iterdir()]
        except OSError:
            continue
        if os.fsencode(home) in words or any(file.startswith(f"{home}/") for file in files):
            found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def left_over(made: Storm) -> list[str]:
    """What should be gone once all sessions have ended and no process serves."""
    out = [f"process {pid}: {words[:200]}" for pid, words in processes(made.home).items()]
    out += [str(path) for folder in ("hands", "egress/doors") for path in (made.home / folder).glob("*")]
    return out + [name for name in os.listdir(run_directory(os.getuid())) if name.removesuffix(".sock") in made.hands]


def broken(events: list[Event], told: Story, effects: Counter[str]) -> list[str]:
    """What does not hold of one session."""
    out = [f"effect {key} happened {count} times" for key, count in effects.items() if count > 1]
    ends: Counter[str] = Counter()
    unknown = set()
    facts: list[Fact] = [event.fact for event in events]
    for fact in facts:
        if isinstance(fact, ToolResult | ToolOutcomeUnknown):
            ends[fact.call_id] += 1
        if isinstance(fact, ToolOutcomeUnknown):
            unknown.add(fact.call_id)
    uses = [fact.call_id for fact in facts if isinstance(fact, AgentToolUse)]
    out += [f"call {call_id} has {ends[call_id]} ends" for call_id in uses if ends[call_id] != 1]
    if not unknown and not any(isinstance(fact, ToolResult) and fact.outcome != "ok" for fact in facts):
        out += [f"effect {key} is lost" for key in told.keys if not effects[key]]
    return out


async def look(made: Storm) -> list[str]:
    """What does not hold of the home and of each session."""
    async with open_runtime(Settings(home=str(made.home))) as runtime:
        out = [finding.message for finding in (await verify(runtime.store)).findings]
        for session_id, kind in made.kinds.items():
            row = await runtime.store.find(session_id)
            file = runtime.home.workspaces / session_id / EFFECTS
            effects = Counter(file.read_text().splitlines() if file.exists() else [])
            found = broken(await runtime.store.read(session_id), STORIES[kind], effects)
            if row.status != "done":
                found.append(f"it ended {row.status} {row.reason} {row.detail}")
            out += [f"{kind} {session_id}: {each}" for each in found]
    return out


def weathers(base: Path, strikes: int, sessions: int, seed: int) -> None:
    """Strike so often, wait for the end of all, and look. Until the last strike, new sessions follow those that end."""
    clock = SystemClock()
    with storm(base / "home", seed) as made:
        anyio.run(made.open, sessions)
        end = clock.monotonic_s() + PATIENCE_S
        while made.struck.total() < strikes:
            assert clock.monotonic_s() < end, f"nobody to strike: {made.struck}"
            made.staffed()
            if made.unfinished() < sessions // 4:
                anyio.run(made.open, sessions // 4)
            if made.strike() and made.struck.total() % 10 == 0:
                anyio.run(made.answer_all)
        while made.unfinished():
            assert clock.monotonic_s() < end, f"stuck: {stands(made.home)}"
            made.staffed()
            anyio.run(made.answer_all)
            pass_time(0.2)
    assert anyio.run(look, made) == []
    assert money(made.home) == []
    end = clock.monotonic_s() + LEFT_S
    while True:
        with working("--home", str(made.home), home=made.home):
            pass  # whoever serves next sweeps what killed processes left
        left = left_over(made)
        if not left or clock.monotonic_s() > end:
            break
        pass_time(5.0)
    print(f"{len(made.kinds)} sessions, struck: {dict(made.struck)}, seed {seed}; left over: {left}")
    assert left == []


def test_a_storm(tmp_path: Path) -> None:
    weathers(tmp_path, *FEW, seed=1)


@pytest.mark.faults
def test_a_long_storm(tmp_path: Path) -> None:
    weathers(tmp_path, *MANY, seed=2)
