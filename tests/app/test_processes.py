"""Several processes on one session, signals, and outputs that close: with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import HOLDFAST, Said, Type, bash, ended, kept, rows, script, spawn, turn, typed

MARK = "begun"
"""What the long command of these tests leaves in its workspace when it has begun."""


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A model whose first command waits until a file `go` appears in the workspace."""
    waits = f"echo x >> {MARK}; until [ -e go ]; do sleep 0.02; done; echo x >> ended"
    return script(tmp_path / "long.json", bash(waits), turn(text="It is over."))


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Look again and again, as long as the process lives."""
    while not condition():
        assert process.poll() is None, ended(process)
        threading.Event().wait(0.01)


@pytest.fixture(autouse=True)
def _nothing_goes_on(type: Type) -> Iterator[None]:
    """Commands that a test left running in their hands end with their sessions."""
    yield
    for row in type("ps", "--json").lines:
        if row["state"] == "runnable":
            type("cancel", row["session_id"]).went()


class Running:
    """A `run` in a process of its own, in the middle of its long command."""

    def __init__(self, home: Path, *words: str, **options: Any) -> None:
        self.process = spawn("run", "x", "--session-id", "k", *words, **options)
        self.home = home
        self.wait_for(MARK)

    def wait_for(self, name: str) -> None:
        """Until the command has left that file."""
        until(lambda: list((self.home / "workspaces").glob(f"*/{name}")), self.process)

    def release(self) -> None:
        """Let the command end."""
        (folder,) = (self.home / "workspaces").iterdir()
        (folder / "go").touch()

    def traces(self) -> str:
        """How often it began and ended."""
        (folder,) = (self.home / "workspaces").iterdir()
        return "".join((folder / name).read_text() for name in (MARK, "ended")).replace("\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_lets_go_and_the_command_goes_on(
    type: Type, long: str, holdfast_home: Path, number: signal.Signals
) -> None:
    running = Running(holdfast_home, "--model", long)
    running.process.send_signal(number)
    said = ended(running.process).went(130)
    assert said.out == ""
    *_, resume, last = said.err.splitlines()
    resume = last if number != signal.SIGINT else resume
    assert resume == "It is intact; go on with `holdfast wake k`."
    assert last.startswith("k: still running under its supervisor: bash") == (number == signal.SIGINT)
    assert "k is runnable: the process was asked to stop" in said.err
    running.release()
    woken = type("wake", "k").went()
    assert woken.out == "It is over.\n"
    assert "taken from the hands' journal" in woken.err
    assert running.traces() == "xx"


def test_a_job_in_the_background_of_a_script_obeys_sigterm_alone(long: str, holdfast_home: Path) -> None:
    running = Running(
        holdfast_home,
        "--model",
        long,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)],
    )
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGHUP)
    assert typed("interrupt", "k").went().out.startswith("interrupt posted")
    assert ended(running.process).went(3).err.count("interrupted; send a message to go on") == 1
    typed("send", "k", "on", "--no-wake").went()


def test_sigterm_reaches_a_job_in_the_background(long: str, holdfast_home: Path) -> None:
    running = Running(
        holdfast_home, "--model", long, "--json", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )
    running.process.send_signal(signal.SIGTERM)
    said = ended(running.process).went(130)
    result = said.lines[-1]
    assert (result["type"], result["status"], result["exit_code"]) == ("result", "runnable", 130)
    assert result["stop_reason"] == "interrupted"


def test_wake_attaches_to_a_running_session(type: Type, long: str, holdfast_home: Path) -> None:
    running = Running(holdfast_home, "--model", long)
    other = spawn("wake", "k")
    assert other.stderr is not None
    assert "is running in another process" in other.stderr.readline()
    shown = type("show", "k").went().out
    assert "state       running\n" in shown
    assert "open calls  bash 3.0\n" in shown
    assert "holdfast logs k -f" in shown
    sent = type("send", "k", "hello", "--no-wake").went()
    assert sent.err == "k is running, and takes this in at its next step\n"
    running.release()
    assert ended(running.process).went().out == ended(other).went().out
    assert [row["state"] for row in type("ps", "--json").lines] == ["done"]
    assert _count(holdfast_home, "shift.started") == 1
    assert running.traces() == "xx"


def test_an_attached_command_that_is_stopped_stops_nothing(type: Type, long: str, holdfast_home: Path) -> None:
    running = Running(holdfast_home, "--model", long)
    other = spawn("wake", "k")
    assert other.stderr is not None
    other.stderr.readline()
    other.send_signal(signal.SIGINT)
    said = ended(other).went(130)
    assert "k is running in another process" in said.err
    running.release()
    assert ended(running.process).went().out == "It is over.\n"


def test_steal_from_a_stopped_process(type: Type, long: str, holdfast_home: Path) -> None:
    running = Running(holdfast_home, "--model", long)
    running.process.send_signal(signal.SIGSTOP)
    running.release()
    woken = type("wake", "k", "--steal").went()
    assert "the lease was taken from wrk_" in woken.err
    head = _count(holdfast_home)
    running.process.send_signal(signal.SIGCONT)
    zombie = ended(running.process).went()
    assert "k is done" in zombie.err
    assert _count(holdfast_home) == head
    assert running.traces() == "xx"


def test_sigkill_and_wake(type: Type, long: str, holdfast_home: Path) -> None:
    running = Running(holdfast_home, "--model", long)
    running.process.kill()
    assert ended(running.process).code == -signal.SIGKILL
    assert [row["state"] for row in type("ps", "--json").lines] == ["runnable"]
    assert "It is intact; go on with `holdfast wake k`." in type("show", "k").out
    running.release()
    assert type("wake", "k").went().out == "It is over.\n"
    assert running.traces() == "xx"


def test_interrupt_during_a_command(type: Type, long: str, holdfast_home: Path) -> None:
    running = Running(holdfast_home, "--model", long)
    assert type("interrupt", "k", "--reason", "enough").went().out.startswith("interrupt posted as event ")
    said = ended(running.process).went(3)
    assert "→ cancelled in " in said.err
    answer, go = re.findall(r"`holdfast (.*?)`", said.err.splitlines()[-1])
    assert (answer, go) == ("send k 'your words'", "attach k")


def test_interrupt_and_cancel_during_a_stream(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="Too late.", delay_s=3_000))
    type("ps").went()
    for verb, code, status in (("interrupt", 3, "parked (person)"), ("cancel", 1, "cancelled")):
        process = spawn("run", "x", "--session-id", verb, "--model", model)
        until(partial(_asked, holdfast_home, verb), process)
        logs = spawn("logs", verb, "-f", "--json")
        assert logs.stdout is not None
        first = logs.stdout.readline()
        type(verb, verb).went()
        assert f"{verb} is {status}" in ended(process).went(code).err
        followed = ended(logs).went()
        assert json.loads(first)["seq"] == 1
        assert followed.lines[-1]["type"] == "shift.ended"
        assert f"{verb} is {status.split()[0]}; no process is running it." in followed.err


def _asked(home: Path, key: str) -> bool:
    """Whether the session's model request is on its way."""
    query = "select 1 from events join sessions using (session_id) where key = ? and type = 'span.model_request_start'"
    return bool(rows(home / "holdfast.db", query, key))


def test_detach_and_follow_to_the_end(type: Type, long: str, holdfast_home: Path) -> None:
    detached = typed("run", "x", "--model", long, "--session-id", "k", "--detach").went()
    assert detached.out == "k continues in the background; follow it with: holdfast logs k -f\n"
    assert [row["state"] for row in type("ps", "--json").lines] == ["running"]
    follower = spawn("logs", "k", "-f", "--json")
    again = typed("run", "--session-id", "k", "--detach", "--json").went()
    assert (again.lines[-1]["status"], again.lines[-1]["stop_reason"]) == ("running", "detached")
    (folder,) = (holdfast_home / "workspaces").iterdir()
    (folder / "go").touch()
    followed = ended(follower).went()
    assert [line["seq"] for line in followed.lines] == list(range(1, _count(holdfast_home) + 1))
    assert followed.err.startswith("k is done; no process is running it. The work is in ")
    assert type("wake", "k").went().out == "It is over.\n"


def test_a_background_process_imports_nothing_from_the_folder_it_begins_in(type: Type, long: str) -> None:
    """That folder is often the workspace, where an agent writes: a module there must not replace one of Python's."""
    for name in ("anyio", "sqlite3", "holdfast"):
        Path(f"{name}.py").write_text(f"open('loaded', 'a').write({name!r})\n")
    type("run", "x", "--model", long, "--session-id", "k", "--detach").went()
    type("cancel", "k").went()
    assert not Path("loaded").exists()


def test_what_cannot_go_on_is_not_detached(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    type("send", "k", "more", "--no-wake")
    (tmp_path / "m.json").unlink()
    before = kept(holdfast_home)
    for words in (("--detach",), ("--max-turns", "9"), ("a new goal",)):
        type("run", "--session-id", "k", *words).refused(2, "the model script", "m.json")
    assert kept(holdfast_home) == before


def test_readers_that_leave(type: Type, long: str, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", *[bash(f"echo {n}") for n in range(20)], turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "done").went()
    for words in (("logs", "done"), ("export", "done"), ("logs", "done", "--json")):
        assert _with_reader_gone(*words) == Said(0, "", "")
    ran = _with_reader_gone("run", "x", "--model", long, "--json")
    assert (ran.code, "Traceback" in ran.err) == (130, False)
    states = {row["key"]: row["state"] for row in type("ps", "--json").lines}
    assert states == {"done": "done", "": "runnable"}
    silent = spawn("run", "x", "--model", model, "--session-id", "deaf", stderr=subprocess.PIPE)
    assert silent.stderr is not None
    silent.stderr.close()
    assert silent.stdout is not None
    with silent.stdout:
        assert silent.stdout.read() == "ok\n"
    assert silent.wait() == 0, "progress that nobody reads is no reason to stop"


def _with_reader_gone(*words: str) -> Said:
    read, write = os.pipe()
    process = spawn(*words, stdout=write)
    os.close(write)
    os.close(read)
    return ended(process)


def test_outputs_that_are_closed_or_full(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="é →"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    line = " ".join([*HOLDFAST, "logs", "k"])
    for closing in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(["/bin/sh", "-c", f"{line} {closing}"], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done
    for flags in ((), ("--json",)):
        with open("/dev/full", "w") as full:
            typed("logs", "k", *flags, stdout=full).refused(5, "standard output", "No space left on device")
    for name in ("ascii", "latin-1"):
        said = typed("logs", "k", env={"PYTHONIOENCODING": name}, encoding=name).went()
        assert "é" in said.out or "\\xe9" in said.out
    assert type("verify").went().code == 0


def test_ctrl_c_at_any_moment_of_a_look(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    for lines in range(6):
        process = spawn("logs", "k", "-f")
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = ended(process)
        # Before the first line Python itself may be hit, and leaves with 1 while it looks for its modules.
        starting = not lines and re.search(r"<frozen site>|Fatal Python error|Could not import runpy", said.err)
        assert said.code in (0, 130, -signal.SIGINT) or (starting and said.code == 1), said
        assert not lines or "Traceback" not in said.err


def _count(home: Path, kind: str = "%") -> int:
    (found,) = rows(home / "holdfast.db", "select count(*) from events where type like ?", kind)
    return int(found[0])


def test_the_last_line_of_a_log_is_whole(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="ok"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    out = typed("export", "k").went().out
    assert out.endswith("}\n")
    assert json.loads(out.splitlines()[-1])["type"] == "shift.ended"


END = """
import atexit, sys, threading
from holdfast.app.cli import main

atexit.register(print, "after it")
home, beside, *words = sys.argv[1:]
sys.argv = ["holdfast", "--home", home, *words]
over = threading.Event()
threading.Thread(target=threading.Event().wait, daemon=True).start()
if beside == "beside":
    threading.Thread(target=over.wait).start()
print("returned", main())
over.set()
"""


@pytest.mark.parametrize(("beside", "returned"), [("alone", ""), ("beside", "returned 0\n")])
def test_a_command_ends_the_process_at_once(type: Type, tmp_path: Path, beside: str, returned: str) -> None:
    """With all that it printed, and what is registered for the end; it returns while a thread is at work
    that Python itself would wait for."""
    command = [sys.executable, "-c", END, str(tmp_path / "home"), beside, "ps"]
    said = ended(subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    printed, _, last = said.went().out.rpartition(f"{returned}after it\n")
    assert printed
    assert (last, "returned" in printed) == ("", False)
