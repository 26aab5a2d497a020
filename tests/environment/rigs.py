"""Real sessions on real environments: hands in the sandbox, layers on the disk, the proxy before the registries.

**These checks leave the machine**: the package tools inside the sandbox fetch a few small packages from the registries
that this machine's own tools use, through the proxy of the session, which lets nothing else through. That is the one
exception to `tests/offline`, and it is the proxy's alone: it is a process of its own, started apart from PYTHONPATH.
Each test that needs it says so and is skipped, with its reason, where the registries do not answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import anyio

from holdfast.brain.doors import Doors, Worker
from holdfast.brain.wake import Outcome, wake
from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.environment.registries import discover
from holdfast.environment.store import LayerStore
from holdfast.facts.hands import EnvironmentRecorded
from holdfast.facts.session import Agent, Environment, SessionCreated, Workspace
from holdfast.facts.tool import ToolResult
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.launch import Lives
from holdfast.hands.user import choose_user
from holdfast.ids import system_entropy
from holdfast.kinds import KINDS
from holdfast.log.memory import MemoryStore
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.vault.fake import FakeVault

_REACHES = """
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="HEAD"), timeout=15).close()
"""


@cache
def unreachable() -> str:
    """Why the registries cannot be used here; empty when they can. Asks the index of Python packages."""
    index = discover().env.get("PIP_INDEX_URL", "")
    if not index:
        return "this machine's pip names no index"
    asked = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", _REACHES, f"{index}/pip/"], capture_output=True, check=False, env={}
    )
    if asked.returncode != 0:
        return f"the package registries do not answer: {asked.stderr.decode()[-200:].strip()}"
    print("\nleaves the machine: packages are fetched from this machine's own registries", file=sys.stderr)
    return ""


class Home:
    """A home of sessions on one machine: its hands, its layers, its proxies, one log."""

    def __init__(self, folder: Path, *, secrets: dict[str, str] | None = None) -> None:
        folder.mkdir(mode=0o711, exist_ok=True)
        self.folder = folder
        self.clock = SystemClock()
        self.store = MemoryStore(self.clock)
        self.hands = BubblewrapProvider(folder / "hands", lives=Lives(grace_s=20.0))
        self.layers = LayerStore(folder / "environments", self.clock)
        self.egress = ProxyEgress(
            folder / "egress",
            FakeVault(secrets or {}, self.clock),
            registries=lambda: discover().destinations,
            idle_s=20.0,
        )
        self.intake = Intake(self.store, self.store, self.clock, system_entropy, Caller("user:test"))
        self.sessions: list[str] = []

    async def run(self, workspace: Path, policy: Environment, *commands: str, **more: Any) -> Outcome:
        """Open a session whose model gives those commands, one a turn, and wake it to its end."""
        return await self.wake(await self.open(workspace, policy, **more), *commands)

    async def open(
        self, workspace: Path, policy: Environment, *, isolation: Literal["sandbox", "none"] = "sandbox", **more: Any
    ) -> str:
        """Open a session."""
        session_id = self.intake.new_session_id()
        self.sessions.append(session_id)
        created = SessionCreated(
            goal="the goal",
            agent=Agent(model="scripted"),
            workspace=Workspace(str(workspace), disposable=True, isolation=isolation),
            environment=policy,
            **more,
        )
        await self.intake.open(session_id, created)
        return session_id

    async def wake(self, session_id: str, *commands: str) -> Outcome:
        """Wake it with a model that gives those commands."""
        calls = [{"tool_calls": [{"name": "bash", "input": {"command": each}}]} for each in commands]
        script = parse_script(json.dumps({"turns": [*calls, {"text": "done"}]}))
        model = ScriptedModel(script, self.clock)
        doors = Doors(
            kinds=KINDS,
            log=self.store,
            leases=self.store,
            snapshots=self.store,
            hands=self.hands,
            model=lambda name: model,
            clock=self.clock,
            entropy=system_entropy,
            worker=Worker("wrk_1", "host", "boot", os.getpid(), "test"),
            prompt="the prompt",
            egress=self.egress,
            environments=self.layers,
            uid=lambda workspace: choose_user(workspace).uid,
        )
        with anyio.fail_after(240):
            return await wake(session_id, doors)

    async def facts(self, kind: type[Any], session: int = -1) -> list[Any]:
        """The facts of one type of a session, in order."""
        events = await self.store.read(self.sessions[session])
        return [event.fact for event in events if isinstance(event.fact, kind)]

    async def results(self, session: int = -1) -> list[str]:
        """What the calls of a session gave, in order."""
        return [fact.content for fact in await self.facts(ToolResult, session)]

    async def record(self, session: int = -1) -> EnvironmentRecorded:
        """The only environment that a session recorded."""
        (found,) = await self.facts(EnvironmentRecorded, session)
        assert isinstance(found, EnvironmentRecorded)
        return found


@asynccontextmanager
async def home(base: Path, *, secrets: dict[str, str] | None = None) -> AsyncIterator[Home]:
    """A home whose proxies end with it."""
    made = Home(base / "home", secrets=secrets)
    try:
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            for session_id in made.sessions:
                for name in (session_id, f"{session_id}-setup"):
                    await made.egress.forget(name)


def write(folder: Path, files: dict[str, str]) -> Path:
    """A workspace with those files. Made by us, so it is given to the hands' user when it is first used."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def listing(folder: Path) -> dict[str, str]:
    """Every file of a workspace with its content."""
    return {
        str(path.relative_to(folder)): path.read_text(errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def has(*programs: str) -> str:
    """Which of these programs are not here, as a reason to skip; empty when all are."""
    missing = [each for each in programs if shutil.which(each, path="/usr/local/bin:/usr/bin:/bin") is None]
    return f"not on this machine: {', '.join(missing)}" if missing else ""
