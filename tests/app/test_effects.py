"""Loud, broken and wrong things that a model or its commands do: survived from one end to the other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

from tests.app.terminal import Said, Type, bash, ended, script, spawn, turn

MEGABYTE = 1_000_000


def _results(type: Type, name: str) -> list[dict[str, Any]]:
    out = type("logs", name, "--json", "--type", "agent.tool_result").went().out
    return [json.loads(line) for line in out.splitlines()]


def test_300_megabytes_that_are_no_text(type: Type, holdfast_home: Path) -> None:
    """The log stays small, the model reads head and tail, the whole of it would be in a file up to its limit."""
    model = script(
        Path("m.json"),
        bash("echo first; head -c 300000000 /dev/zero | tr '\\0' '\\377'; echo; echo last"),
        bash("printf '\\377\\376 half a letter: \\303'; printf '\\0\\033[31m'; printf 'x%.0s' $(seq 100000)"),
        turn(text="over"),
    )
    type("run", "x", "--model", model, "--session-id", "k").went()
    loud, odd = _results(type, "k")
    assert loud["outcome"] == "ok"
    assert loud["truncated"]
    assert loud["bytes_total"] == 300 * MEGABYTE + len("first\n\nlast\n")
    assert loud["content"].startswith("first\n")
    assert "last\n" in loud["content"]
    assert len(loud["content"]) < MEGABYTE
    assert odd["content"].startswith("\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} half a letter: ")
    assert sum(file.stat().st_size for file in holdfast_home.glob("holdfast.db*")) < MEGABYTE
    assert type("logs", "k").went().out.count("\u001b") == 0
    assert type("verify").went().code == 0
    left = subprocess.run(["du", "-sm", str(holdfast_home)], capture_output=True, text=True, check=True)
    assert int(left.stdout.split()[0]) < 10, "given back with the hands"


def test_malformed_calls_are_told_to_the_model(type: Type) -> None:
    calls: list[dict[str, Any]] = [
        {"name": "bash", "malformed": '{"command": "echo half'},
        {"name": "bash", "malformed": '["echo list"]'},
        {"name": "bash", "input": {}},
        {"name": "bash", "input": {"command": 7}},
        {"name": "bash", "input": {"command": "true", "timeout": -1}},
        {"name": "bash", "input": {"command": "true", "colour": "red"}},
        {"name": "bash", "input": {"command": "echo nul\0byte"}},
        {"name": "rm_rf", "input": {"path": "/"}},
        {"name": "read", "input": {"file_path": "gone.txt"}},
        {"name": "read", "input": {"file_path": "/etc/shadow"}},
        {"name": "write", "input": {"file_path": "../../outside", "content": "x"}},
        {"name": "edit", "input": {"file_path": "gone.txt", "old_string": "a", "new_string": "b"}},
        {"name": "grep", "input": {"pattern": "(", "path": "."}},
    ]
    model = script(Path("m.json"), *[turn(tool_calls=[call]) for call in calls], turn(text="I see."))
    went = type("run", "x", "--model", model, "--session-id", "k").went()
    assert went.out == "I see.\n"
    for call, result in zip(calls, _results(type, "k"), strict=True):
        assert result["outcome"] == "error", (call, result)
        assert len(result["content"]) > 10
        assert "Traceback" not in result["content"]
    assert went.err.count("→ error") == len(calls)


def test_a_failing_command_says_why_on_the_line(type: Type) -> None:
    model = script(Path("m.json"), bash("echo fine; echo 'no such thing' >&2; exit 3"), turn(text="ok"))
    went = type("run", "x", "--model", model).went()
    assert re.search(r"→ error, exit status 3 in \d+\.\d s\n +fine\n +no such thing\n", went.err), went.err


def test_long_words_stay_on_one_line(type: Type) -> None:
    model = script(Path("m.json"), bash("true; " * 500 + "\n" * 50), turn(text="long\n" * 50 + "word " * 200))
    went = type("run", "goal " * 500, "--model", model, "--session-id", "k").went()
    assert went.out.count("\n") == 51
    assert max(map(len, went.err.splitlines()[2:-2])) < 150
    assert max(map(len, type("ps").out.splitlines())) < 140


def test_two_runs_with_one_key_at_once(type: Type, holdfast_home: Path) -> None:
    model = script(Path("m.json"), bash("echo x >> traces"), turn(text="done"))
    type("ps").went()
    both = [spawn("run", "x", "--model", model, "--session-id", "k") for _ in range(3)]
    assert [ended(process).went().out for process in both] == ["done\n"] * 3
    (row,) = type("ps", "--json").lines
    assert (row["state"], row["turns"]) == ("done", 2)
    (folder,) = (holdfast_home / "workspaces").iterdir()
    assert (folder / "traces").read_text() == "x\n"


def test_a_message_is_taken_once_per_key(type: Type) -> None:
    model = script(Path("m.json"), turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    first = type("send", "k", "hello", "--key", "mail-7", "--no-wake").went()
    again: Said = type("send", "k", "hello", "--key", "mail-7", "--no-wake").went()
    assert again.out == first.out.replace("\n", " before, and not again\n")


def test_a_terminal_gets_lines_that_fit_and_nothing_that_moves(tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo " + "wide " * 40), turn(text="word " * 40))
    inner, outer = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(inner, "rb", buffering=0) as screen:
        process = spawn("run", "x", "--model", model, "--plain", stderr=outer)
        os.close(outer)
        assert process.stdout is not None
        assert process.stdout.read() == "word " * 40 + "\n"
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last user
            while piece := screen.read(65_536):
                shown += piece
        assert ended(process).code == 0
    lines = [line for line in shown.decode().split("\r\n") if re.match(r" +\d+\.\ds ", line)]
    assert len(lines) == 4
    assert 75 <= max(map(len, lines)) <= 80
    assert b"\x1b" not in shown
    assert b"\r" not in shown.replace(b"\r\n", b"")
