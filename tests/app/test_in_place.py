"""Questions of a session in the foreground, answered on the terminal that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.looping import MINE, passes, project, story
from tests.app.screen import Session
from tests.app.terminal import Type, bash, script, turn

pytestmark = pytest.mark.usefixtures("holdfast_home")

NO_SANDBOX = ("--session-id", "k", "--no-sandbox", "--ask", "bash")


def asking(question: str) -> dict[str, object]:
    """A turn that asks that."""
    return turn(tool_calls=[{"name": "ask_person", "input": {"question": question}}])


def results(type: Type) -> list[str]:
    """The results of the session's calls, as the model reads them."""
    facts = [line.get("fact", line) for line in type("export", "k").lines if line["type"] == "agent.tool_result"]
    return [str(fact["content"]) for fact in facts]


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_a_run_asks_where_it_runs_and_goes_on(type: Type, tmp_path: Path, plain: tuple[str, ...]) -> None:
    model = script(
        tmp_path / "m.json", bash("echo one"), bash("echo two"), asking("Postgres or SQLite?"), turn(text="All done.")
    )
    with Session("run", "x", "--model", model, *NO_SANDBOX, *plain, rows=60) as terminal:
        terminal.until("echo one")
        terminal.until("Approve? y(es) or n(o)")
        terminal.type("perhaps\n")
        terminal.until(lambda text: "neither yes nor no" in text and text.count("Approve? y(es) or n(o)") >= 2)
        terminal.type("y\n")  # what is typed before a question is dropped
        terminal.until(lambda text: text.count("Approve? y(es) or n(o)") >= 3 and "echo two" in text)
        terminal.type("n not today\n")
        terminal.until("Your answer (Enter alone: later):")
        terminal.type("SQLite, as always\n")
        terminal.until("All done.")
        assert terminal.ended() == 0
    first, second, third = results(type)
    assert "one" in first
    assert "not today" in second
    assert third == "SQLite, as always"


@pytest.mark.parametrize("keys", ["\n", "l\n", "\x04"])
def test_later_leaves_the_session_parked(type: Type, tmp_path: Path, keys: str) -> None:
    model = script(tmp_path / "m.json", bash("echo one"), turn(text="All done."))
    with Session("run", "x", "--model", model, *NO_SANDBOX, "--plain") as terminal:
        terminal.until("Approve?")
        terminal.type(keys)
        assert terminal.ended() == 3
        assert "holdfast approve" in " ".join(terminal.text.split())
    (item,) = type("inbox", "--json").lines
    assert item["item_id"]


def test_ctrl_c_at_a_question_loses_nothing(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo one"), turn(text="All done."))
    with Session("run", "x", "--model", model, *NO_SANDBOX, "--plain") as terminal:
        terminal.until("Approve?")
        terminal.type("ctrl-c")
        assert terminal.ended() == 130
    type("approve", type("inbox", "--json").lines[0]["item_id"], "--no-wake").went()
    assert type("wake", "k").went().out == "All done.\n"


def test_an_answer_from_elsewhere_goes_first(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo one"), turn(text="All done."))
    with Session("run", "x", "--model", model, *NO_SANDBOX, "--plain", rows=40) as terminal:
        terminal.until("Approve?")
        type("deny", type("inbox", "--json").lines[0]["item_id"], "--no-wake").went()
        terminal.type("y\n")
        terminal.until("was already denied")
        terminal.until("All done.")
        assert terminal.ended() == 0
    (result,) = results(type)
    assert "denied" in result.lower() or "no" in result.lower()
    assert "one" not in result


def test_a_loop_asks_where_it_runs(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    words = (
        "loop",
        "--workspace",
        folder,
        *MINE,
        "--session-id",
        "k",
        "--",
        "bash",
        "-c",
        "! test -e now || touch US-001",
    )
    with Session(*words, rows=60) as terminal:
        terminal.until("Approve?")
        (folder / "now").write_text("")
        terminal.type("y\n")
        assert terminal.ended() == 0, terminal.text
    assert passes(folder) == {"US-001": True}


@pytest.mark.parametrize("second", ["ctrl-c", ""])
def test_ctrl_c_names_the_running_command_and_the_second_one_ends_it(
    type: Type, tmp_path: Path, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    command = f"echo begun; touch begun; while [ ! -e {go} ]; do sleep 0.05; done; echo finished"
    model = script(tmp_path / "m.json", bash(command), turn(text="All done."))
    words = ("run", "x", "--model", model, "--session-id", "k", "--no-sandbox", "--plain")
    with Session(*words, rows=60, columns=160) as terminal:
        terminal.until(lambda _: any(tmp_path.glob("home/workspaces/*/begun")))
        terminal.type("ctrl-c")
        terminal.until("k: still running under its supervisor: bash echo begun")
        terminal.until("Ctrl-C within 10 s ends it")
        terminal.type(second or "\x1c")  # ctrl-\ ends the process at once, and nothing else
        if second:
            terminal.until("Ended 1 command.")
            assert terminal.ended() == 130
        else:
            terminal.ended()
            go.touch()
    assert type("wake", "k").went().out == "All done.\n"
    (result,) = results(type)
    assert ("finished" in result) == (not second)
    assert ("stopped by a person" in result) == bool(second)
