"""A conversation with the oracle over plain tools, and what can go wrong with its calls."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from holdfast.model.base import ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.proof.oracle.session import OracleModel
from holdfast.proof.rebuild.strip import Manifest, strip
from holdfast.session.context.conversation import Message, Part, TextPart, ToolCallPart, ToolResultPart
from holdfast.session.tools import TOOLS, check_input
from tests.proof.made_library import MODULE, SUITE

FILE = "made/shapes.py"
RUN_SUITE = f"""{sys.executable} -c "
import sys; sys.path[:0] = ['.', 'tests']; sys.dont_write_bytecode = True
import test_shapes as t; t.test_functions(); t.test_shapes()"
"""
"""The suite without pytest's own start-up: it is run hundreds of times here."""

QUICK = "true # the nearest tests"
RESPONSES_MAX = 120
OUTPUT_CAP = 30_000


class VirtualClock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now_us(self) -> int:
        return round(self.slept * 1_000_000)

    def monotonic_s(self) -> float:
        return self.slept

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        await anyio.lowlevel.checkpoint()


def stripped_workspace(folder: Path, module: str = MODULE, suite: str = SUITE) -> Manifest:
    data, described, blocks = strip(FILE, module.encode())
    for path, text in {"made/__init__.py": "", "tests/test_shapes.py": suite, FILE: data.decode()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Manifest("made==1.2.3", (described,), blocks, ("tests",), ("tests/test_shapes.py",))


Gutter = Callable[[int, str], str]
GUTTERS: dict[str, Gutter] = {
    "cat -n": lambda number, line: f"{number:6}\t{line}",
    "colon": lambda number, line: f"{number}: {line}",
    "bar": lambda number, line: f"{number:>4} | {line}",
    "arrow": lambda number, line: f"{number:>5}→{line}",
    "none": lambda number, line: line,
}


@dataclass
class Tools:
    """The six tools over a folder, done plainly; edits of what was not read are refused."""

    folder: Path
    gutter: Gutter = GUTTERS["cat -n"]
    seen: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, value: dict[str, Any]) -> tuple[bool, str]:
        """Whether it went well, and what is printed."""
        assert check_input(TOOLS[name], value) == ""
        done, output = getattr(self, f"_{name}")(value)
        if len(output) > OUTPUT_CAP:
            output = output[: OUTPUT_CAP // 2] + "\n[cut]\n" + output[-OUTPUT_CAP // 2 :]
        return done, output

    def _glob(self, value: dict[str, Any]) -> tuple[bool, str]:
        return True, "\n".join(str(path.relative_to(self.folder)) for path in self.folder.glob(value["pattern"]))

    def _grep(self, value: dict[str, Any]) -> tuple[bool, str]:
        found = [
            f"{path.relative_to(self.folder)}:{number}:{line}"
            for path in self.folder.rglob("*.py")
            for number, line in enumerate(path.read_text().split("\n"), 1)
            if re.search(value["pattern"], line)
        ]
        return bool(found), "\n".join(found)

    def _read(self, value: dict[str, Any]) -> tuple[bool, str]:
        text = (self.folder / value["file_path"]).read_text()
        lines = text.removesuffix("\n").split("\n")
        first, last = value.get("view_range") or (1, -1)
        if first > len(lines):
            return False, f"the file has only {len(lines)} lines"
        self._remember(value["file_path"])
        last = len(lines) if last == -1 else last
        return True, "\n".join(
            self.gutter(number, line) for number, line in enumerate(lines, 1) if first <= number <= last
        )

    def _edit(self, value: dict[str, Any]) -> tuple[bool, str]:
        path = self.folder / value["file_path"]
        if self.seen.get(value["file_path"]) != hashlib.sha256(path.read_bytes()).hexdigest():
            return False, "the file changed since you read it; read it again"
        text = path.read_text()
        if text.count(value["old_string"]) != 1:
            return False, f"old_string occurs {text.count(value['old_string'])} times"
        path.write_text(text.replace(value["old_string"], value["new_string"]))
        self._remember(value["file_path"])
        return True, "edited"

    def _bash(self, value: dict[str, Any]) -> tuple[bool, str]:
        done = subprocess.run(
            ["bash", "-c", value["command"]], cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode == 0, f"{done.stdout}{done.stderr}\n[exit {done.returncode}]"

    def _remember(self, path: str) -> None:
        self.seen[path] = hashlib.sha256((self.folder / path).read_bytes()).hexdigest()


@dataclass(frozen=True)
class Trouble:
    """What goes wrong with a call: is it run all the same, and what is said then."""

    ran: bool
    says: str
    skips_rest: bool = False


TROUBLES = {
    "error": Trouble(False, "could not be done"),
    "denied": Trouble(False, "Denied by the rule for '*'.", True),
    "cancelled": Trouble(False, "Not run: a person interrupted.", True),
    "unknown, it ran": Trouble(True, "Nobody can say whether this ran.", True),
    "unknown, it did not run": Trouble(False, "Nobody can say whether this ran.", True),
    "timed out": Trouble(True, "It took too long and was ended."),
}


@dataclass
class Session:
    """A conversation with a fresh oracle for every response, as a killed and woken brain would have."""

    manifest: Manifest
    tools: Tools
    messages: list[Message] = field(default_factory=lambda: [Message("user", (TextPart("Restore it."),))])
    calls: int = 0
    responses: int = 0
    words: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    before: Callable[[int, str, dict[str, Any]], Trouble | None] = lambda number, name, value: None
    says: dict[int, str] = field(default_factory=dict)

    def model(self, clock: VirtualClock | None = None) -> OracleModel:
        return OracleModel(self.manifest, RUN_SUITE, clock or VirtualClock(), quick_command=QUICK)

    def request(self) -> ModelRequest:
        return ModelRequest("turn", "system", tuple(self.messages), (), 8192, self.responses, 1)

    async def parts(self) -> list[StreamPart]:
        return [part async for part in self.model().stream(self.request())]

    async def to_the_end(self) -> str:
        """Go on until the oracle asks for nothing more. Returns its last words."""
        for _ in range(RESPONSES_MAX):
            if not await self.one_response():
                return self.words[-1]
        raise AssertionError(f"no end after {RESPONSES_MAX} responses; the last words: {self.words[-1]}")

    async def one_response(self) -> bool:
        parts = await self.parts()
        calls = calls_of(parts, self.responses)
        self.words.append("".join(part.text for part in parts if isinstance(part, TextDelta)))
        self.messages.append(Message("assistant", (TextPart(self.words[-1]), *calls)))
        self.responses += 1
        results: list[Part] = []
        skip = False
        for call in calls:
            trouble = self.before(self.calls, call.name, call.input)
            self.calls += 1
            self.names.append(call.name)
            if skip:
                results.append(ToolResultPart(call.call_id, call.name, "Not run: an earlier call failed.", True))
                continue
            ok, output = self.tools.run(call.name, call.input) if trouble is None or trouble.ran else (False, "")
            if trouble is not None:
                ok, output, skip = False, trouble.says, trouble.skips_rest
            results.append(ToolResultPart(call.call_id, call.name, output, not ok))
        if self.responses in self.says:
            results.append(TextPart(self.says[self.responses]))
        if results:
            self.messages.append(Message("user", tuple(results)))
        return bool(results)


def calls_of(parts: list[StreamPart], responses: int) -> list[ToolCallPart]:
    calls = []
    for start in parts:
        if isinstance(start, ToolCallStart):
            text = "".join(p.fragment for p in parts if isinstance(p, ToolCallDelta) and p.index == start.index)
            calls.append(ToolCallPart(f"{responses}.{start.index}", start.name, json.loads(text)))
    return calls


def session_in(folder: Path, gutter: str = "cat -n", module: str = MODULE, suite: str = SUITE) -> Session:
    return Session(stripped_workspace(folder, module, suite), Tools(folder, GUTTERS[gutter]))


def run_clean(folder: Path) -> Session:
    session = session_in(folder)
    anyio.run(session.to_the_end)
    return session
