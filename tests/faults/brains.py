"""Brains as a test holds them: born in the nursery, signalled, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.faults.nursery import Order, Report
from tests.faults.seams import Seam
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

"""How long anything may take before the test says that it hangs."""


class Brain:
    """One process that runs `wake`."""

    def __init__(self, said: Path) -> None:
        self.said = said
        self.pid = 0
        self.status: int | None = None
        self.born = threading.Event()
        self.dead = threading.Event()

    def send(self, number: int) -> bool:
        """Signal it; False when it has ended already. The nursery reaps the dead, so by handle, not by number."""
        if self.dead.is_set():
            return False
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait(self) -> int:
        """Its exit status; the negative number of a signal that ended it."""
        if not self.dead.wait(PATIENCE_S):
            raise AssertionError(f"brain {self.pid} hangs:\n{self.errors()}\n{self.stack()}")
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    def until_stopped(self) -> bool:
        """Wait until it is stopped (SIGSTOP); False when it ended instead."""
        wait_for(lambda: self.dead.is_set() or state_of(self.pid) == "T", f"brain {self.pid} stops")
        return not self.dead.is_set()

    def errors(self) -> str:
        """What it said on standard error."""
        return Path(f"{self.said}.err").read_text() if Path(f"{self.said}.err").exists() else ""

    def output(self) -> str:
        """What it said on standard output."""
        return Path(f"{self.said}.out").read_text() if Path(f"{self.said}.out").exists() else ""

    def transactions(self) -> list[list[tuple[int, str]]]:
        """`(seq, id)` of every event that the log promised to it, by transaction."""
        path = Path(f"{self.said}.acks")
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [[(int(seq), id_) for seq, id_ in zip(line[::2], line[1::2], strict=True)] for line in lines]

    def acknowledged(self) -> list[tuple[int, str]]:
        """`(seq, id)` of every event that the log promised to it."""
        return [each for transaction in self.transactions() for each in transaction]

    def stack(self) -> str:
        """Where its threads wait, as the kernel sees it."""
        return "\n".join(
            f"{task.name} {(task / 'wchan').read_text()} {(task / 'syscall').read_text().split()[0]}"
            for task in Path(f"/proc/{self.pid}/task").glob("*")
        )


class Nursery:
    """The other end of `tests.faults.nursery`. Safe to use from several threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._brains: dict[int, Brain] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wake(self, home: Path, session: str, *seams: Seam, steal: bool = False) -> Brain:
        """A new brain on that session."""
        with self._lock:
            number = len(self._brains) + 1
            brain = self._brains[number] = Brain(home / f"brain-{number}")
            order = Order(number, str(home), session, str(brain.said), steal, seams)
            assert self._process.stdin is not None
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        assert brain.born.wait(PATIENCE_S), "the nursery does not answer"
        return brain

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = msgspec.json.decode(line, type=Report)
            brain = self._brains[report.number]
            brain.pid = report.pid
            if report.status is None:
                brain.born.set()
            else:
                brain.status = report.status
                brain.dead.set()

    def close(self) -> None:
        """End it, and every brain that is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery for the block."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()


def state_of(pid: int) -> str:
    """The state letter of a process as /proc shows it; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text[text.rindex(")") + 2]


def wait_for(ready: object, what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until `ready()` is true; fail loudly when it never is."""
    assert callable(ready)
    pause = threading.Event()
    end = time.monotonic() + patience_s
    while not ready():
        assert time.monotonic() < end, f"waited {patience_s:.0f} s in vain until {what}"
        pause.wait(0.002)
