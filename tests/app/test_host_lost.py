"""A machine that is lost with its processes and its disk: another one continues from the database and the objects."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.repo.rigs import picture
from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make a machine of processes that end together"),
]

PASSWORD = "T0PS3CRET"
MAKE = "echo one > kept; mkdir -p deep/er empty; head -c 3000000 /dev/urandom > deep/er/random; ln -s kept link"
CHECK = "cat kept; sha256sum < deep/er/random; ls -d empty link"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for the tests of this file, without the password."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address


def test_another_machine_continues(postgres: str, holdfast_home: Path, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    env = {**os.environ, "PGPASSWORD": PASSWORD, "HOLDFAST_DB": postgres, "HOLDFAST_OBJECTS": f"file://{objects}"}

    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def events(kind: str) -> list[dict[str, Any]]:
        said = holdfast("logs", "lost", "--json", "--type", kind)
        return [json.loads(line) for line in said.stdout.splitlines()]

    turns = [{"tool_calls": [{"name": "bash", "input": {"command": each}}]} for each in (MAKE, "sleep 900", CHECK)]
    (tmp_path / "talk.json").write_text(json.dumps({"turns": [*turns, {"text": "Done."}]}))
    assert holdfast("migrate").returncode == 0
    assert "an object was written, read back, and deleted" in holdfast("doctor").stdout
    run = ("run", "Work.", "--scratch", "--model", f"scripted:{tmp_path}/talk.json", "--session-id", "lost")
    machine = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen([*machine, sys.executable, "-m", "holdfast", *run], env=env) as first:
        try:
            until(lambda: len(events("tool.dispatched")) == 2)
        finally:
            first.kill()
    (workspace,) = (holdfast_home / "workspaces").iterdir()
    before = picture(workspace)
    before.pop(b".git", None)  # a mount point of the sandbox that ended
    assert before[b"deep/er/random"][1]
    shutil.rmtree(holdfast_home)

    assert "if its machine is lost: holdfast migrate --take-over" in holdfast("ps").stderr
    early = holdfast("migrate", "--take-over")
    assert (early.returncode, "lived some seconds ago" in early.stderr) in ((5, True), (0, False))
    until(lambda: holdfast("migrate", "--take-over").returncode == 0)
    assert "nothing to do" in holdfast("migrate", "--take-over").stdout
    done = holdfast("wake", "lost")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    (restored,) = events("hands.restored")
    assert (restored["snapshot"], restored["content"]) != ("", "")
    assert len(events("tool.outcome_unknown")) == 1
    digest = hashlib.sha256((workspace / "deep/er/random").read_bytes()).hexdigest()
    assert events("agent.tool_result")[-1]["content"] == f"one\n{digest}  -\nempty\nlink\n"
    assert picture(workspace) == before
    assert "all chains and rows verify" in holdfast("verify").stdout
    assert holdfast("rm", "lost", "--yes").returncode == 0
    assert [path for path in objects.rglob("*") if path.is_file()] == []
