"""The live view, as it stands on a terminal that an emulator renders from the bytes of a real pty."""

from __future__ import annotations

import os
import re
import select
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.app.screen import Session
from tests.app.terminal import PRICE, Type, bash, in_scratch, script, spawn, turn, typed
from tests.support.waiting import PATIENCE_S

FORBIDDEN = (b"\x1b[?1049", b"\x1b[?47", b"\x1b[?25l", b"\x1b[2J", b"\x1bc")
"""Alternate screens, a hidden cursor, a cleared screen, a reset."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that the tool call waits for."""
    return tmp_path / "go"


@pytest.fixture
def model(tmp_path: Path, gate: Path) -> str:
    """Says something long with odd characters, waits for the gate in a tool call, says that it is done."""
    odd = "so it is " * 12 + "and in other words, 日本語のテキストもここ, \x1b[31mred\x07 \u202e: I look first."
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    return script(tmp_path / "m.json", {**bash(wait), "text": odd}, turn(text="All is done."), price=PRICE)


RUNNING = re.compile(r"^running  bash: until.*  [1-9]\d* s ", re.MULTILINE)
"""The status line while the tool call waits, after a second or more."""


def running(text: str) -> bool:
    """Whether the block says that the call runs."""
    return RUNNING.search(text) is not None


def drawn(text: str, *, cost: bool) -> bool:
    """Whether the block is there once, with or without the cost."""
    return ("$0.3150" in text) == cost and len(re.findall(r"^running ", text, re.MULTILINE)) == 1


def run_words(model: str) -> tuple[str, ...]:
    """A run that is not sandboxed, so that its tool call sees the gate."""
    return ("run", "Write.", "--model", model, "--session-id", "k", "--budget", "2", "--no-sandbox")


def test_a_run_on_a_terminal(model: str, gate: Path) -> None:
    with Session(*run_words(model)) as terminal:
        terminal.until(running)
        *lines, status = terminal.lines()
        assert re.fullmatch(r"running  bash: until.* s  NOT SANDBOXED  \$0\.3150 of \$2\.00  context 0%", status), (
            status
        )
        assert len(status) == 79
        assert any("日本語のテキスト" in line for line in lines), terminal.text
        assert lines[-1].startswith("bash: until [ -e ")
        assert terminal.screen.cursor.y == len(lines), "the cursor rests on the block's first row"
        gate.touch()
        assert terminal.ended() == 0
        final = r"  → ok in .* s\nAll is done\.\nk is done — \d+ events, 2 turns, \$0\.6300\nThe work is in"
        assert re.search(final, terminal.text), terminal.text
        assert not any(line.startswith(("running ", "| ")) for line in terminal.past()), "the block is gone"
        assert sum("bash: until" in line for line in terminal.past()) == 1
        assert sum("All is done." in line for line in terminal.past()) == 1
        assert [each for each in FORBIDDEN if each in terminal.written] == []
        assert b"\x07" not in terminal.written
        assert b"\x1b[31m" not in terminal.written
        assert "\u202e".encode() not in terminal.written


@pytest.mark.parametrize("columns", [40, 20])
def test_narrow_terminals_and_a_resize(model: str, gate: Path, columns: int) -> None:
    with Session(*run_words(model), columns=columns, rows=18) as terminal:
        terminal.until(lambda text: bool(re.search(r"^running ", text, re.MULTILINE)))
        for width in (columns, 2 * columns, columns):
            terminal.resize(width, 18)
            before = len(terminal.pieces)
            terminal.until(lambda _, before=before: len(terminal.pieces) > before)  # type: ignore[misc]
            terminal.until(partial(drawn, cost=width == 80))  # not the moment between an erased block and the next
        gate.touch()
        assert terminal.ended() == 0
        assert "k is done" in terminal.text


def test_where_nothing_is_drawn(model: str, gate: Path) -> None:
    gate.touch()
    plain = typed(*run_words(model)).went().err
    assert "\x1b" not in plain
    assert re.search(r"^ +\d\.\ds  bash: until", plain, re.MULTILINE)
    for number, (flags, env) in enumerate(
        [((), {"TERM": "dumb"}), ((), {"TERM": ""}), (("--plain",), {}), (("--json",), {})]
    ):
        words = [f"k{number}" if word == "k" else word for word in run_words(model)]
        with Session(*words, *flags, env=env) as terminal:
            assert terminal.ended() == 0
            assert b"\x1b" not in terminal.written, terminal.text


def test_no_color_is_drawn_without_colors(model: str, gate: Path) -> None:
    for env in ({"NO_COLOR": "1"}, {}):
        gate.unlink(missing_ok=True)
        with Session(*(word if word != "k" else f"k{len(env)}" for word in run_words(model)), env=env) as terminal:
            terminal.until("running  bash")
            gate.touch()
            assert terminal.ended() == 0
            colors = re.findall(rb"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|4[0-7])[0-9;]*m", terminal.written)
            assert bool(colors) != bool(env)


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM"])
def test_a_stop_leaves_the_terminal_as_it_was(model: str, gate: Path, how: str) -> None:
    with Session(*run_words(model)) as terminal:
        terminal.until(running)
        if how == "ctrl-c":
            terminal.type(how)
            terminal.until("Ctrl-C within 10 s ends it; otherwise the next wake takes the result.")
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.ended() == 130
        assert not any(line.startswith(("running ", "| ", "^C")) for line in terminal.lines()), terminal.text
        assert re.search(r"^k is runnable.* — \d+ events, 1 turn, \$0\.3150$", terminal.text, re.MULTILINE), (
            terminal.text
        )
        assert "It is intact; go on with `holdfast wake k`." in terminal.lines()
        assert not terminal.screen.cursor.hidden
        assert terminal.written.rfind(b"\x1b[?7h") > terminal.written.rfind(b"\x1b[?7l"), "lines wrap again"
    gate.touch()
    assert typed("wake", "k").went().out == "All is done.\n"


def test_a_shell_suspends_and_continues_it(model: str, gate: Path) -> None:
    shell = ("bash", "--norc", "--noprofile", "-i")
    with Session(command=shell, env={"PS1": "$ "}, rows=30) as terminal:
        terminal.until("$")
        words = " ".join(in_scratch(run_words(model)))
        terminal.type(f"clear; {Path(os.sys.executable)} -m holdfast {words}\n")  # type: ignore[attr-defined]
        terminal.until(running)
        terminal.type("ctrl-z")
        stopped = terminal.until("Stopped")
        assert "running  bash" not in stopped
        terminal.type("clear; fg\n")
        terminal.until("running  bash")
        gate.touch()
        terminal.until("k is done")
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_attach_follows_until_the_end(model: str, gate: Path) -> None:
    typed(*run_words(model), "--detach").went()
    with Session("attach", "k") as leaving, Session("attach", "k") as staying:
        piped = spawn("attach", "k", "--json")
        for terminal in (leaving, staying):
            terminal.until(lambda text: "running  bash: until" in text)
        assert piped.stdout is not None
        while not select.select([piped.stdout], [], [], 0.1)[0]:  # a message shows that it follows by now
            typed("send", "k", "Go on.").went()
        leaving.type("ctrl-c")
        assert leaving.ended() == 130
        assert "k is running in another process" in leaving.text
        assert "Follow it with `holdfast logs k -f`" in leaving.text
        gate.touch()
        assert staying.ended() == 0
        assert "→ ok in " in staying.text
        assert "\nAll is done.\nk is done — " in staying.text
        out, _ = piped.communicate(timeout=PATIENCE_S)
        assert '"type":"user.message"' in out
        assert '"type":"agent.tool_result"' in out
        assert '"type":"result"' in out.splitlines()[-1]
        assert piped.returncode == 0


def test_attach_to_a_session_that_nobody_runs(type: Type, model: str, gate: Path) -> None:
    gate.touch()
    type(*run_words(model)[:-1], "--max-turns", "1", "--no-sandbox").went(4)
    alone = type("attach", "k").went(4)
    assert alone.err.startswith("no process runs k now\nk is parked (cap)")
    assert "`holdfast run --session-id k --max-turns 2`" in alone.err
    (line,) = type("attach", "k", "--json").went(4).lines
    assert line["type"] == "result"
    assert line["exit_code"] == 4
    type("attach", "nobody").refused(2, "no session 'nobody'", "holdfast ps --all")


def test_doctor_fits_a_narrow_terminal(holdfast_home: Path) -> None:
    with Session("doctor", "--all", columns=60, rows=100) as terminal:
        assert terminal.ended() == 0
        assert "tool calls are isolated here" in terminal.text
        for line in terminal.written.decode().splitlines():
            assert len(line) <= 60 or max(map(len, line.split())) > 45, line  # a long path is not broken
