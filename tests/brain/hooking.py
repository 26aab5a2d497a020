"""A worker of a mission on a stage, in a repository with hooks of its own; and its brain as a process to be killed.

`python -m tests.brain.hooking HOME SCRIPT` wakes the session that `Killable` opened there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from holdfast.brain.doors import Doors, Worker
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.brain.wake import Outcome, wake
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.mission import Role
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.hands.base import Provider
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider
from holdfast.ids import new_event_id, system_entropy
from holdfast.kinds import KINDS
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker as LiveWorker
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.repo.git_repository import GitRepository
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.brain.stage import Stage
from tests.hands.rigs import unsandboxed
from tests.support.waiting import PATIENCE_S

GUARD = """#!/usr/bin/env python3
import json
import sys

data = json.load(sys.stdin)
command = data.get("tool_input", {}).get("command", "")
if "rm -rf" in command:
    print(f"refused by the guard: {command}", file=sys.stderr)
    sys.exit(2)
sys.exit(0)
"""

LINT = """#!/bin/sh
# Claude Code hands the edited file over on standard input.
file=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["tool_input"]["file_path"])')
if grep -n TODO "$file" >&2; then
  echo "leave no TODO in $file" >&2
  exit 2
fi
"""

HOOKS: dict[str, Any] = {
    "hooks": {
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [{"type": "command", "command": 'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.py'}],
            }
        ],
        "PostToolUse": [
            {
                "matcher": "Edit|Write",
                "hooks": [{"type": "command", "command": '"$CLAUDE_PROJECT_DIR"/.claude/hooks/lint.sh'}],
            }
        ],
    }
}

SCRIPTS = {".claude/hooks/guard.py": GUARD, ".claude/hooks/lint.sh": LINT}

GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def repository(folder: Path, settings: Any = HOOKS, scripts: dict[str, str] | None = None) -> str:
    """A repository with these hooks in its only commit, whose name is returned."""
    folder.mkdir(parents=True)
    files = {".claude/settings.json": json.dumps(settings), **(SCRIPTS if scripts is None else scripts)}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        (folder / path).chmod(0o755 if path.endswith(".sh") else 0o644)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run(["git", "-C", folder, *command], env=GIT, check=True, timeout=PATIENCE_S)
    found = subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"],
        env=GIT,
        check=True,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    return found.stdout.strip()


def really(command: str, files: Files) -> tuple[int, str]:
    """A command of hands in memory, run by a real shell on a folder with their files."""
    with tempfile.TemporaryDirectory() as name:
        given = files.get("/dev/stdin", b"")
        for path, content in files.items():
            place = Path(name + path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(0o755 if content.startswith(b"#!") else 0o644)
        work = Path(name, "workspace")
        work.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["bash", "-c", command.replace("/workspace", str(work))],
            cwd=work,
            input=given.replace(b"/workspace", str(work).encode()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
        for gone in [path for path in files if path.startswith("/workspace/") and not Path(name + path).exists()]:
            del files[gone]
        for place in work.rglob("*"):
            if place.is_file():
                files["/workspace/" + str(place.relative_to(work))] = place.read_bytes()
        return ran.returncode, ran.stdout.decode().replace(str(work), "/workspace")


@dataclass
class HookStage(Stage):
    """A worker with hooks. `provider` is of real hands, None for those in memory."""

    base: Path = Path()
    settings: Any = field(default_factory=lambda: HOOKS)
    scripts: dict[str, str] | None = None
    hooks: bool = True
    checks: tuple[str, ...] = ()
    edit_checks: tuple[str, ...] = ()
    provider: Provider | None = None
    folder: str = "/w"
    protected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limits = Limits(max_turns=len(self.turns))
        self.repo = self.base / "repo"
        self.commit = repository(self.repo, self.settings, self.scripts)
        if self.provider is None:
            self.hands = FakeProvider(self.clock, effect=really, pace=self.pace)
        self.doors = replace(
            self.doors,
            hands=self.provider or self.hands,
            repository=lambda path: GitRepository(path, self.base / "state"),
        )

    async def open(self) -> None:
        """Open the worker's session."""
        role = Role(
            "worker",
            task_id="t1",
            repo=str(self.repo),
            ref="refs/heads/holdfast/demo/t1",
            base=self.commit,
            protected=self.protected,
            hooks=self.hooks,
            checks=self.checks,
            edit_checks=self.edit_checks,
        )
        agent = Agent(model="scripted", rules=self.rules, tools=(*self.tools, "hand_in"))
        where = Workspace(self.folder, disposable=True)
        await self.intake.open(
            self.session_id, SessionCreated(goal="g", agent=agent, workspace=where, limits=self.limits, role=role)
        )

    @asynccontextmanager
    async def shift(self) -> AsyncIterator[Shift]:
        """A shift of this session that is driven by hand."""
        state, bodies = await recall(self.session_id, self.store, self.store, KINDS)
        who = ShiftStarted(worker_id="wrk_1", host_id="h", boot_id="b", pid=1, program="test")
        draft = Draft(new_event_id(self.clock.now_us(), system_entropy), "brain", who)
        lease = await self.store.acquire(self.session_id, draft, steal=False, head=state.seq)
        shift = Shift(self.doors, state, lease, bodies)
        async with anyio.create_task_group() as shift.background:
            await shift.refresh()
            shift.decided_at = shift.state.seq
            try:
                with anyio.fail_after(PATIENCE_S):
                    yield shift
            finally:
                shift.background.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.store.release(lease)


# --- a process to be killed ------------------------------------------------------------------------


async def open_killable(home: Path, settings: Any, scripts: dict[str, str]) -> str:
    """Open a worker's session in a log on disk."""
    home.chmod(0o755)
    commit = repository(home / "repo", settings, scripts)
    work = home / "work"
    work.mkdir()
    async with await SqliteStore.open(home / "log.db", workers=home / "workers", clock=SystemClock()) as store:
        intake = Intake(store, store, SystemClock(), system_entropy, Caller("user:test"))
        session_id = intake.new_session_id()
        role = Role("worker", task_id="t1", repo=str(home / "repo"), base=commit, hooks=True)
        where = Workspace(str(work), disposable=True, isolation="none")
        created = SessionCreated(
            goal="g",
            agent=Agent("scripted", tools=(*Agent("").tools, "hand_in")),
            workspace=where,
            limits=Limits(max_turns=2),
            role=role,
        )
        await intake.open(session_id, created)
    return session_id


async def wake_killable(home: Path, session_id: str, turns: list[dict[str, Any]]) -> tuple[Outcome, list[Any]]:
    """Wake it in this process, under a worker of its own; its facts too."""
    worker_id = f"wrk_{os.getpid()}"
    live = LiveWorker.start(home / "workers", worker_id)
    try:
        async with await SqliteStore.open(home / "log.db", workers=home / "workers", clock=SystemClock()) as store:
            model = ScriptedModel(parse_script(json.dumps({"turns": turns})), SystemClock())
            doors = Doors(
                kinds=KINDS,
                log=store,
                leases=store,
                snapshots=store,
                hands=unsandboxed(home / "hands"),
                model=lambda name: model,
                clock=SystemClock(),
                entropy=system_entropy,
                worker=Worker(worker_id, "h", "b", os.getpid(), "test"),
                prompt="the prompt",
                repository=lambda path: GitRepository(path, home / "state"),
            )
            outcome = await wake(session_id, doors)
            return outcome, [event.fact for event in await store.read(session_id)]
    finally:
        live.close()


if __name__ == "__main__":
    anyio.run(wake_killable, Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
