"""Plug-in for pytest that records each test's outcome in isolation, and the functions that it enters.

It runs in the hands, as a file beside a library, and imports nothing of Holdfast. Each test runs in a process of its
own, forked right after collection: side effects of one test do not reach the next, and only a hanging test is killed.
The question is `.probe/ask.json` below the current folder, the answer goes to `.probe/out.json`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from types import CodeType, FrameType
from typing import Any

FOLDER = ".probe"
_LENGTH = 8


class Entered:
    """Numbers of the requested functions that were entered."""

    def __init__(self, functions: dict[str, dict[str, int]]) -> None:
        top = os.getcwd()
        self.seen: set[int] = set()
        self._wanted = {
            (os.path.join(top, file), int(line)): number
            for file, lines in functions.items()
            for line, number in lines.items()
        }
        self._known: dict[CodeType, int | None] = {}

    def begin(self) -> None:
        """Watch from now on, in this thread and in those that start later."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def end(self) -> None:
        """Stop watching."""
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._known:
            self._known[code] = self._wanted.get((code.co_filename, code.co_firstlineno))
        number = self._known[code]
        if number is not None:
            self.seen.add(number)


class Probe:
    """Question and results of a run."""

    def __init__(self) -> None:
        with open(os.path.join(FOLDER, "ask.json"), encoding="utf-8") as file:
            ask: dict[str, Any] = json.load(file)
        self.test_timeout_s: float = ask["test_timeout_s"]
        self.entered = Entered(ask["functions"]) if ask["functions"] else None
        self.tests: dict[str, list[Any]] = {}
        self.imported: list[int] = []

    def collected(self) -> None:
        """End collection: functions entered so far were entered by imports."""
        if self.entered:
            self.imported = sorted(self.entered.seen)
            self.entered.seen.clear()

    def run(self, item: Any) -> None:
        """Run one test in its own process."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self._child(item, writing)
        os.close(writing)
        answer = self._answer(reading)
        os.close(reading)
        # The test leads its own process group, so its child processes are killed with it.
        for end in (os.killpg, os.kill):
            try:
                end(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(child, 0)
        self.tests[item.nodeid] = answer

    def _child(self, item: Any, writing: int) -> None:
        try:
            os.setpgid(0, 0)
            from _pytest import runner

            protocol: Any = runner.runtestprotocol
            reports = protocol(item, log=False, nextitem=None)
            outcomes = {report.outcome for report in reports}
            odd = any(hasattr(report, "wasxfail") for report in reports)
            word = "failed" if "failed" in outcomes else "skipped" if "skipped" in outcomes or odd else "passed"
            seen = sorted(self.entered.seen) if self.entered else []
            data = json.dumps([word, seen]).encode()
            os.write(writing, len(data).to_bytes(_LENGTH, "big"))
            while data:
                data = data[os.write(writing, data) :]
        finally:
            os._exit(0)

    def _answer(self, reading: int) -> list[Any]:
        if not select.select([reading], [], [], self.test_timeout_s)[0]:
            return ["hung", []]
        data, wanted = b"", _LENGTH
        while len(data) < wanted:
            chunk = os.read(reading, 65536)
            if not chunk:
                return ["failed", []]
            data += chunk
            if wanted == _LENGTH and len(data) >= _LENGTH:
                wanted = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
        answer: list[Any] = json.loads(data[_LENGTH:])
        return answer

    def save(self, status: int) -> None:
        """Write the answer."""
        with open(os.path.join(FOLDER, "out.json"), "w", encoding="utf-8") as file:
            json.dump({"status": status, "imported": self.imported, "tests": self.tests}, file)


_probe = Probe()
if _probe.entered:
    # Tests are collected next, which imports the library.
    _probe.entered.begin()


def pytest_collection_finish(session: Any) -> None:
    """Note that every test file was imported, as far as possible."""
    _probe.collected()


def pytest_runtest_protocol(item: Any, nextitem: Any) -> bool:
    """Replace pytest's way of running a test."""
    _probe.run(item)
    return True


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """Save the answer after all tests have run, or could not even be collected."""
    _probe.save(int(exitstatus))
