"""A user undoes what a session did to its files, and can take that back; nothing is lost, whenever it is killed."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from holdfast.repo.put_back import put_back
from tests.app.terminal import Type, bash, script, spawn, turn, typed
from tests.app.test_fork import at, tree

FIRST, SECOND = "echo one > a.txt; mkdir d; echo x > d/f", "rm -r a.txt d; echo two > b.txt"


@pytest.fixture
def folder(type: Type, tmp_path: Path) -> Path:
    """The workspace of a finished session with the key `k`."""
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "mine.txt").write_text("before\n")
    model = script(tmp_path / "m.json", bash(FIRST), bash(SECOND), turn(text="done"), turn(text="I see it."))
    type("run", "x", "--model", model, "--session-id", "k", "--workspace", folder, "--take-over").went()
    return folder


BEGIN = {"mine.txt": "before\n"}
BETWEEN = {**BEGIN, "a.txt": "one\n", "d/f": "x\n"}
END = {**BEGIN, "b.txt": "two\n"}


def back(said: str) -> str:
    """The position that takes an undo back, from the command that it proposes."""
    return said.split("--to ")[1].split("`")[0]


def test_there_and_back(type: Type, folder: Path) -> None:
    begin, between = at(type, "k", "workspace.snapshotted") - 1, at(type, "k", "agent.tool_result")
    undone = type("undo", "k", "--to", str(begin)).went()
    assert tree(folder) == BEGIN
    assert "1 change undone" in undone.out
    type("undo", "k", "--to", str(between)).went()
    assert tree(folder) == BETWEEN
    type("undo", "k", "--to", back(undone.err)).went()
    assert tree(folder) == END
    assert "nothing to undo" in type("undo", "k", "--to", back(undone.err)).went().out
    assert "all chains and rows verify" in type("verify", "k").went().out
    assert type("diff", "k", "--at", str(between)).went().out.count("\n-one") == 1


def test_changes_of_a_user_need_a_yes_and_are_kept(type: Type, folder: Path) -> None:
    (folder / "mine.txt").write_text("after\n")
    (folder / ".git").mkdir()
    between = str(at(type, "k", "agent.tool_result"))
    type("undo", "k", "--to", between).refused(2, "they may be yours", "nothing was changed", "--yes")
    assert tree(folder) == {**END, "mine.txt": "after\n"}
    undone = type("undo", "k", "--to", between, "--yes", "--json").went()
    assert tree(folder) == BETWEEN
    assert (folder / ".git").is_dir()
    type("undo", "k", "--to", str(undone.lines[-1]["back_seq"])).went()
    assert tree(folder) == {**END, "mine.txt": "after\n"}


def test_the_model_is_told(type: Type, folder: Path) -> None:
    type("undo", "k", "--to", str(at(type, "k", "agent.tool_result"))).went()
    assert type("ps", "--json").lines[0]["state"] == "done", "an undo starts nothing"
    assert type("send", "k", "go on").went().code == 0
    assert "I see it." in type("wake", "k").went().out
    told = at(type, "k", "hands.restored")
    last = type("logs", "k", "--type", "span.model_request_start", "--json").went().lines[-1]
    assert last["inputs_through"] > told
    assert "The user restored the workspace" in type("logs", "k", "--type", "hands.restored", "--json").went().out


def test_to_the_files_as_they_were_found(type: Type, folder: Path) -> None:
    type("undo", "k", "--to", "1").went()
    assert tree(folder) == BEGIN


def test_a_kill_before_the_record_is_made_good(type: Type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    between = str(at(type, "k", "agent.tool_result"))

    def killed(*given: Path) -> None:
        put_back(*given)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.service.undo.put_back", killed)
        assert type("undo", "k", "--to", between).code != 0
    assert tree(folder) == BETWEEN
    assert type("logs", "k", "--type", "hands.restored", "--json").lines == []
    type("undo", "k", "--to", between).went()
    assert len(type("logs", "k", "--type", "hands.restored", "--json").lines) == 1
    assert "nothing to undo" in type("undo", "k", "--to", between).went().out
    assert tree(folder) == BETWEEN


def test_what_cannot_be_undone(type: Type, folder: Path) -> None:
    type("undo", "k", "--to", "999").refused(2, "has the events 1 to")
    type("undo", "k").refused(2, "--to")


def test_killed_at_any_moment_it_can_be_repeated(type: Type, folder: Path) -> None:
    begin, end = str(at(type, "k", "workspace.snapshotted") - 1), str(at(type, "k", "agent.tool_result", 1))
    for seed in range(3):
        for to, wanted in ((begin, BEGIN), (end, END)):
            process = spawn("undo", "k", "--to", to, "--yes")
            try:
                process.wait(random.Random(seed).uniform(0.2, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            typed("undo", "k", "--to", to, "--yes").went()
            assert tree(folder) == wanted
    assert "all chains and rows verify" in type("verify", "k").went().out
