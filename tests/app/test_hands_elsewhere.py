"""Sessions whose hands are elsewhere, from the command line: the work comes back, and what is lost is told."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from holdfast.hands.box.supervisor.journal import replay
from tests.app.families import until
from tests.app.terminal import Type, bash, ended, script, spawn, turn
from tests.support.as_user import UID
from tests.support.waiting import remove

SSH = """\
#!/bin/sh
# Stands for ssh: runs what would be run there, with a home of its own.
for last; do :; done
[ "$last" = "holdfast hands serve" ] || exit 9
PYTHONPATH={path} exec {python} -m holdfast hands --home {there} serve
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The other machine's home; the user's own settings name it, and `ssh` leads there."""
    there, programs, config = tmp_path / "there", tmp_path / "bin", tmp_path / "config" / "holdfast"
    for folder in (there, programs, config):
        folder.mkdir(parents=True)
    there.chmod(0o711)
    ssh = programs / "ssh"
    ssh.write_text(SSH.format(python=sys.executable, there=there, path=os.environ["PYTHONPATH"]))
    ssh.chmod(0o755)
    (config / "holdfast.toml").write_text('[hands]\nprovider = "ssh:build1"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return there


def _work(tmp_path: Path) -> Path:
    """A workspace of an ordinary user."""
    work = tmp_path / "work"
    work.mkdir()
    if os.getuid() == 0:
        os.chown(work, UID, UID)
    return work


def _events(type: Type, name: str, kind: str) -> list[dict[str, object]]:
    out = type("logs", name, "--json", "--type", kind).went().out
    return [json.loads(line) for line in out.splitlines()]


def _come(type: Type, kind: str, count: int) -> dict[str, object]:
    """The event with that number of its kind, once a worker in the background has come to it."""
    for _ in range(2_000):
        found = _events(type, "k", kind)
        if len(found) >= count:
            return found[count - 1]
        threading.Event().wait(0.02)
    raise AssertionError(f"no {kind} comes")


def test_the_work_is_done_there_and_comes_back(type: Type, there: Path, tmp_path: Path) -> None:
    work = _work(tmp_path)
    (work / "given").write_text("given\n")
    model = script(Path("m.json"), bash("cat given > made; pwd; rm given"), bash("cat made"), turn(text="done"))
    type("run", "x", "--model", model, "--session-id", "k", "--workspace", work).went()
    assert sorted(path.name for path in work.iterdir()) == ["made"]
    (made,) = _events(type, "k", "hands.provisioned")
    assert (made["provider"], made["holds_workspace"], made["root"]) == ("ssh:build1", True, "/workspace")
    assert len(_events(type, "k", "workspace.snapshotted")) >= 2
    assert list((there / "served" / "work").iterdir()) == []
    assert type("doctor").out.count("ssh:build1") >= 1


def test_what_was_lost_there_is_told(type: Type, there: Path, tmp_path: Path) -> None:
    """The other machine loses hands and workspace in the middle of a call: the next hands begin with the snapshot."""
    work = _work(tmp_path)
    model = script(
        Path("m.json"),
        bash("echo one > kept"),
        bash("echo two >> kept; touch late; sleep 60"),
        bash("cat kept; ls"),
        turn(text="done"),
    )
    running = spawn("run", "x", "--model", model, "--session-id", "k", "--workspace", work)
    until(lambda: any((there / "served" / "work").glob("*/late")), running)
    (journal,) = (there / "served" / "hands").glob("*/journal")
    remove(there / "served" / "work")
    os.kill(int(replay(str(journal)).opened["pid"]), signal.SIGKILL)
    assert ended(running).code == 0
    (restored,) = _events(type, "k", "hands.restored")
    (unknown,) = _events(type, "k", "tool.outcome_unknown")
    assert restored["unkept"] == [unknown["call_id"]]
    assert f"What these calls did after that is gone: bash {unknown['call_id']}." in str(restored["content"])
    last = _events(type, "k", "agent.tool_result")[-1]
    assert last["content"] == "one\nkept\n"
    assert (work / "kept").read_text() == "one\n"
    assert type("verify").went().code == 0


def test_a_repository_cannot_name_where_hands_are(type: Type, tmp_path: Path) -> None:
    """No file of a repository asks for another provider, or for less of a sandbox."""
    work = _work(tmp_path)
    model = script(tmp_path / "m.json", turn(text="done"))
    for line in ('provider = "ssh:evil"', 'provider = "landlock"', "accept_weak = true"):
        (work / "holdfast.toml").write_text(f"[hands]\n{line}\n")
        said = type("run", "x", "--model", model, "--workspace", work)
        if said.code == 0:  # the file counts where the command is typed
            Path("holdfast.toml").write_text(f"[hands]\n{line}\n")
            said = type("run", "x", "--model", model, "--workspace", work)
        assert said.code == 2, said
        assert "put it into your own" in said.err


def test_a_worker_elsewhere_does_the_work(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, a queue, a worker with a home of its own, a session: all from the command line."""
    config = tmp_path / "config" / "holdfast"
    config.mkdir(parents=True)
    (config / "holdfast.toml").write_text('[hands]\nprovider = "remote"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    key, worker_home = tmp_path / "key", tmp_path / "there"
    worker_home.mkdir(mode=0o711)
    key.write_text(type("hands", "key", "mine").went().out)
    queue = spawn("hands", "queue", "--listen", "127.0.0.1:0")
    assert queue.stderr is not None
    url = f"http://127.0.0.1:{queue.stderr.readline().split('127.0.0.1:')[1].split(';')[0]}"
    words: list[str | Path] = ["hands", "--home", worker_home, "work", "--url", url, "--key-file", key]
    assert "chmod 600" in type(*words).err
    key.chmod(0o600)
    worker = spawn(*words)
    work = _work(tmp_path)
    model = script(Path("m.json"), bash("echo far > made"), bash("cat made"), turn(text="done"))
    type("run", "x", "--model", model, "--session-id", "k", "--workspace", work).went()
    assert (work / "made").read_text() == "far\n"
    (made,) = _events(type, "k", "hands.provisioned")
    assert (made["provider"], made["holds_workspace"]) == ("remote", True)
    for process in (worker, queue):
        process.terminate()
        assert ended(process).code == 0
    assert not any((worker_home / "served" / "work").iterdir())
    assert not (worker_home / "holdfast.db").exists(), "a worker has no log"
    assert type("hands", "key", "mine", "--revoke").went().err.endswith("asks for no more work\n")
    assert type("hands", "key", "mine", "--revoke").code == 2
    refused = type("hands", "--home", worker_home, "work", "--url", "http://brains.test", "--key-file", key)
    assert (refused.code, "in the clear" in refused.err) == (2, True)
    assert type("hands", "queue", "--listen", "0.0.0.0:1").code == 2


def test_a_workspace_of_ours_that_is_gone_is_put_back_and_told(type: Type, holdfast_home: Path) -> None:
    model = script(
        Path("m.json"), bash("echo one > kept"), turn(text="done"), bash("cat kept; echo two >> kept"), turn(text="end")
    )
    type("run", "x", "--model", model, "--session-id", "k").went()
    (folder,) = (holdfast_home / "workspaces").iterdir()
    remove(folder)
    type("send", "k", "go on").went()
    type("wake", "k").went()
    (restored,) = _events(type, "k", "hands.restored")
    assert (restored["snapshot"] != "", restored.get("unkept", [])) == (True, [])
    assert _events(type, "k", "agent.tool_result")[-1]["content"] == "one\n"
    assert (folder / "kept").read_text() == "one\ntwo\n"
    assert type("verify").went().code == 0


def test_a_workspace_of_yours_that_is_gone_is_asked_about(type: Type, tmp_path: Path) -> None:
    """Never a silent new start: a person puts it back, and says so."""
    work = _work(tmp_path)
    model = script(Path("m.json"), bash("echo one > kept"), turn(text="done"), bash("cat kept"), turn(text="end"))
    type("run", "x", "--model", model, "--session-id", "k", "--workspace", work).went()
    away = work.rename(tmp_path / "away")
    type("send", "k", "go on").went()
    type("wake", "k")
    assert not work.exists()
    (item,) = _events(type, "k", "approval.requested")
    assert "is not there any more" in str(item["why"])
    type("approve", str(item["item_id"])).went()  # while it is still away: asked again
    again = _come(type, "approval.requested", 2)
    away.rename(work)
    type("approve", str(again["item_id"])).went()
    assert _come(type, "agent.tool_result", 2)["content"] == "one\n"
    _come(type, "shift.ended", 4)
    assert _events(type, "k", "hands.restored") == []
    assert type("verify").went().code == 0
