"""New files that make programs of the host run code, wherever a person looks."""

from __future__ import annotations

from pathlib import Path

from tests.app.terminal import Type, script, turn


def test_new_ones_are_in_the_log_the_brief_and_show(type: Type, tmp_path: Path) -> None:
    work = tmp_path / "project"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    (work / ".envrc").write_text("mine")
    plant = "mkdir -p sub/.git .vscode && echo x > sub/.git/config && echo y >> .envrc; touch 'Holdfast.toml'; true"
    calls = [{"name": "bash", "input": {"command": plant}}]
    model = script(tmp_path / "m.json", turn(tool_calls=calls), turn(text="done"))
    type("run", "x", "--model", model, "--workspace", work, "--session-id", "k").went()
    assert (work / ".envrc").read_text() == "mine"
    events = [each for each in type("logs", "k", "--json").went().lines if each["type"] == "hands.host_files"]
    before, after = events
    assert [each["path"] for each in before["files"]] == [".envrc"]
    assert before["before"] is True
    assert [each["path"] for each in after["files"]] == [".vscode", "Holdfast.toml", "sub/.git"]
    assert "before" not in after
    for words in (("show", "k"), ("brief", "k"), ("logs", "k")):
        assert ".vscode" in type(*words).went().out, words
    type("run", "more", "--session-id", "k").went()
    again = [each for each in type("logs", "k", "--json").went().lines if each["type"] == "hands.host_files"]
    assert again == events, "known ones are told once"
