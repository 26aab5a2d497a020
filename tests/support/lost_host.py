"""A machine for tests that is lost at once, with its processes and its home; another one has the same paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.repo.rigs import picture
from tests.support.waiting import PATIENCE_S, remove, until

MACHINE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What ends with its first process, however they were started. Only root may make one."""

DISK = ("sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "machine")
"""Run on such a machine, what puts a folder where its home is, for its processes alone."""


class Host:
    """A host with its home at `home`, whose log is at `address` and whose snapshots are at `objects` too.

    With `disk`, the home is in that folder: several hosts have the same path for it, and other files.
    """

    def __init__(self, home: Path, address: str, password: str, objects: str, disk: Path | None = None) -> None:
        self.home = home
        self._machine = (*MACHINE, *((*DISK, str(disk), str(home)) if disk is not None else ()))
        for folder in (home, disk or home):
            folder.mkdir(parents=True, exist_ok=True)
        where = {"HOLDFAST_HOME": str(home), "HOLDFAST_DB": address, "HOLDFAST_OBJECTS": objects}
        self.env = {**os.environ, **({"PGPASSWORD": password} if password else {}), **where}

    def holdfast(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        command = [*self._machine, sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def events(self, session: str, kind: str) -> list[dict[str, Any]]:
        """The events of a session of one kind."""
        said = self.holdfast("logs", session, "--json", "--type", kind)
        return [json.loads(line) for line in said.stdout.splitlines()]

    def lose(self, session: str, talk: Path, *commands: str) -> tuple[Path, Mapping[bytes, tuple[str, bytes]]]:
        """Run a session of these commands on a machine that is lost in the second one, with the home.

        Returns its workspace, and what that held.
        """
        turns = [{"tool_calls": [{"name": "bash", "input": {"command": command}}]} for command in commands]
        talk.write_text(json.dumps({"turns": [*turns, {"text": "Done."}]}))
        run = ("run", "Work.", "--scratch", "--model", f"scripted:{talk}", "--session-id", session)
        command = [*self._machine, sys.executable, "-m", "holdfast", *run]
        with subprocess.Popen(command, env=self.env, stderr=subprocess.DEVNULL) as machine:
            try:
                until(lambda: len(self.events(session, "tool.dispatched")) == 2)
            finally:
                machine.kill()
        (workspace,) = (self.home / "workspaces").iterdir()
        held = picture(workspace)
        held.pop(b".git", None)  # a mount point of the sandbox that ended
        remove(self.home)
        return workspace, held

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker, whose machine is lost at the end."""
        command = [*self._machine, sys.executable, "-m", "holdfast", "worker"]
        with subprocess.Popen(command, env=self.env, stderr=subprocess.DEVNULL) as worker:
            try:
                yield worker
            finally:
                worker.kill()

    def finish(self, session: str) -> list[dict[str, Any]]:
        """Let a worker on another machine finish a session; returns its restored workspaces."""
        with self.worker():
            until(lambda: bool(self.events(session, "shift.ended")))
        return self.events(session, "hands.restored")
