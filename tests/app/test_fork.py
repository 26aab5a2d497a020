"""Forking from the command line, and looking at a session as it stood (S22)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.session.money import HOME_ACCOUNT
from tests.app.terminal import PRICE, Type, bash, kept, script, turn


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Two calls that write, then the end."""
    write = bash("echo one > a.txt; mkdir -p deep/er; echo x > deep/er/f; chmod +x deep/er/f; ln -s a.txt link")
    return script(tmp_path / "m.json", write, bash("rm a.txt; echo two > b.txt"), turn(text="done"), price=PRICE)


@pytest.fixture
def origin(type: Type, model: str) -> str:
    """A finished session with the key `first`."""
    type("run", "mend it", "--model", model, "--session-id", "first", "--budget", "50").went()
    return "first"


def at(type: Type, name: str, kind: str, place: int = 0) -> int:
    """The position of an event of that type."""
    lines = type("logs", name, "--type", kind, "--json").went().lines
    return int(lines[place]["seq"])


def tree(folder: str | Path) -> dict[str, str]:
    """Path → content, or where a link goes."""
    return {
        str(path.relative_to(folder)): f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in Path(folder).rglob("*")
        if path.is_symlink() or path.is_file()
    }


BETWEEN = {"a.txt": "one\n", "deep/er/f": "x\n", "link": "-> a.txt"}
"""The files after the first call."""


def test_a_fork_goes_on_another_way(type: Type, origin: str, holdfast_home: Path) -> None:
    seq = at(type, origin, "agent.tool_result")
    before = type("export", origin).out
    said = type("fork", origin, "--at", str(seq), "--key", "other").went()
    assert "holdfast send other" in said.err
    assert "holdfast wake other" in said.err
    (row,) = [line for line in type("ps", "--json").lines if line["key"] == "other"]
    assert (row["state"], row["reason"], row["events"], row["cost_usd"]) == ("parked", "person", seq + 1, 0)
    assert tree(row["workspace"]) == BETWEEN
    assert os.access(Path(row["workspace"]) / "deep/er/f", os.X_OK)
    ended = type("wake", "other", "--json").went()
    assert ended.lines[-1]["status"] == "done"
    assert tree(row["workspace"]) == {"b.txt": "two\n", "deep/er/f": "x\n", "link": "-> a.txt"}
    assert type("export", origin).out == before
    assert type("export", "other").out.splitlines()[:seq] == before.splitlines()[:seq]
    type("verify").went()
    account = {line["account_id"]: line["total"] for line in type("budget", "--json").lines}
    assert account[row["session_id"]]["cap_usd"] == 50
    assert 0 < account[row["session_id"]]["spent_usd"] < 50


def test_a_message_starts_it(type: Type, origin: str) -> None:
    seq = at(type, origin, "agent.tool_result", 1)
    type("fork", origin, "--at", str(seq), "--key", "other", "--budget", "7").went()
    type("send", "other", "use b", "--no-wake").went()
    assert type("wake", "other", "--json").went().lines[-1]["status"] == "done"
    lines = type("logs", "other", "--after", str(seq), "--json").went().lines
    assert [line["type"] for line in lines][:3] == ["session.forked", "user.message", "shift.started"]
    account, home = type("budget", "other", "--json").lines
    assert home["account_id"] == HOME_ACCOUNT
    assert account["total"]["cap_usd"] == 7


def test_forks_of_forks_and_keys(type: Type, origin: str) -> None:
    seq = at(type, origin, "agent.tool_result")
    first = type("fork", origin, "--at", str(seq), "--key", "k", "--json").went().lines[0]
    again = type("fork", origin, "--at", str(seq), "--key", "k", "--json").went().lines[0]
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["session_id"] == first["session_id"]
    type("fork", origin, "--at", str(seq + 1), "--key", "k").refused(2, "is not a fork of", "another key")
    type("fork", origin, "--at", str(seq), "--key", origin).refused(2, "another key")
    nested = type("fork", "k", "--at", str(seq + 1), "--json").went().lines[0]
    assert tree(nested["workspace"]) == BETWEEN
    shared = type("fork", "k", "--at", str(seq - 1), "--json").went().lines[0]
    assert tree(shared["workspace"]) == {}
    assert (nested["snapshot_seq"], nested["origin_seq"]) == (seq + 1, seq + 1)
    type("verify", nested["session_id"]).went()


def test_what_ran_after_the_snapshot_is_said(type: Type, origin: str) -> None:
    seq = at(type, origin, "tool.dispatched", 1)
    said = type("fork", origin, "--at", str(seq), "--json").went().lines[0]
    (call_id,) = said["unkept_calls"]
    assert said["snapshot_seq"] < seq
    assert tree(said["workspace"]) == BETWEEN
    plain = type("show", origin, "--at", str(seq)).went().out
    assert f"not in it: bash {call_id}" in plain
    assert call_id in type("fork", origin, "--at", str(seq)).went().out


def test_what_cannot_be_forked(type: Type, origin: str, tmp_path: Path, holdfast_home: Path) -> None:
    first = at(type, origin, "workspace.snapshotted") - 1
    head = int(type("show", origin, "--json").lines[0]["events"])
    talk = script(tmp_path / "talk.json", turn(text="nothing to do"))
    type("run", "talk", "--model", talk, "--session-id", "talk").went()
    before = kept(holdfast_home)
    for words, code, pieces in (
        (("nobody", "--at", "3"), 2, ("no session", "ps --all")),
        ((origin, "--at", "0"), 2, (f"1 to {head}",)),
        ((origin, "--at", str(head + 1)), 2, (f"1 to {head}",)),
        ((origin, "--at", "9" * 30), 2, ("sequence number",)),
        ((origin, "--at", "-3"), 2, ("example",)),
        ((origin,), 2, ("--at",)),
        ((origin, "--at", str(first - 1)), 2, (f"at {first} or at a later event",)),
        ((origin, "--at", str(first), "--key", " "), 2, ("cannot be a key",)),
        ((origin, "--at", str(first), "--budget", "-1"), 2, ("leaves nothing",)),
        (("talk", "--at", "3"), 5, ("has no snapshot",)),
        (("ses_home", "--at", "1"), 2, ()),
    ):
        type("fork", *words).refused(code, *pieces)
    assert kept(holdfast_home) == before
    type("stop", "--all").went()
    type("fork", origin, "--at", str(first)).refused(3, "stop --release")
    assert kept(holdfast_home)["folders"] == before["folders"]


def test_a_damaged_origin(type: Type, origin: str, holdfast_home: Path) -> None:
    """Up to where it is whole it can be forked; from there on not."""
    seq = at(type, origin, "agent.tool_result", 1)
    with closing(sqlite3.connect(holdfast_home / "holdfast.db", isolation_level=None)) as connection:
        connection.execute("update events set body = x'7b7d' where seq = ?", (seq,))
    type("fork", origin, "--at", str(seq)).refused(6, f"at event {seq}")
    said = type("fork", origin, "--at", str(seq - 1), "--json").went().lines[0]
    type("show", said["session_id"]).went()
    assert tree(said["workspace"]) == BETWEEN


def test_what_a_session_changed(type: Type, origin: str) -> None:
    first, last = at(type, origin, "agent.tool_result"), at(type, origin, "agent.tool_result", 1)
    for places in ((first, last), (last, first)):
        said = type("diff", origin, "--at", *map(str, places)).went()
        patch = said.out.splitlines()
        assert "diff --git a/b.txt b/b.txt" in patch or "rename to b.txt" in patch
        assert f"from the files after event {first} to those after event {last}" in said.err
    workspace = Path(type("show", origin, "--json").went().lines[0]["workspace"])
    (workspace / "mine").write_text("by hand \x1b[31m\n")
    whole = type("diff", origin).went()
    assert "\x1b" not in whole.out, "nothing in a file controls the terminal"
    assert any(line.startswith("+by hand") for line in whole.out.splitlines())
    assert "to those now" in whole.err
    (found,) = type("diff", origin, "--at", str(last), "--json").went().lines
    assert (found["from_seq"], found["to_seq"]) == (last, None)
    assert "+by hand" in found["diff"]
    type("diff", origin, "--at", "1", "2", "3").refused(2, "one or two events")
    type("diff", origin, "--at", "99999").refused(2, "has the events 1 to")
    type("diff", origin, "--at", "1").refused(2, "first kept after")


def test_a_session_as_it_stood(type: Type, origin: str, tmp_path: Path) -> None:
    seq = at(type, origin, "agent.tool_result")
    last = at(type, origin, "agent.tool_result", 1)
    then = type("show", origin, "--at", str(seq), "--json").went().lines[0]
    assert (then["events"], then["turns"], then["snapshot_seq"]) == (seq, 1, seq)
    for earlier, later in ((seq, last), (last, seq)):
        found = type("show", origin, "--at", str(earlier), "--files", str(later)).went().out.splitlines()
        assert found == ["- a.txt", "+ b.txt"], "from the earlier event to the later one"
    (Path(then["workspace"]) / "mine").write_text("by hand")
    assert type("show", origin, "--files", str(seq)).went().out.splitlines() == ["- a.txt", "+ b.txt", "+ mine"]
    lines = type("show", origin, "--at", str(seq), "--files", "--json").went().lines
    assert {line["path"]: line["kind"] for line in lines} == {"a.txt": "removed", "b.txt": "added", "mine": "added"}
    assert "no file differs" in type("show", origin, "--at", str(seq), "--files", str(seq)).went().out
    folder = tmp_path / "then"
    type("show", origin, "--at", str(seq), "--restore", folder).went()
    assert tree(folder) == BETWEEN
    type("show", origin, "--at", str(seq), "--restore", folder).refused(1, "not empty")
    type("show", origin, "--at", "1", "--restore", tmp_path / "no").refused(2, "first kept after")
    assert not (tmp_path / "no").exists()
    type("show", origin, "--at", "1", "--files", "99999").refused(2)
