"""The oracle: it brings a stripped module back byte for byte, whatever happens to its calls."""

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
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.facts.base import Usage
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.conversation import Message, Part, TextPart, ToolCallPart, ToolResultPart
from holdfast.session.tools import TOOLS, check_input
from holdfast.sim.library_strip import Manifest, strip
from holdfast.sim.oracle import TRIES_MAX, OracleModel
from tests.sim.made_library import MODULE, SUITE

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
        assert check_input(name, value) == ""
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
        calls = _calls(parts, self.responses)
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


def _calls(parts: list[StreamPart], responses: int) -> list[ToolCallPart]:
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


@pytest.mark.parametrize("gutter", GUTTERS)
def test_it_restores_the_module_byte_for_byte_and_says_so(gutter: str, tmp_path: Path) -> None:
    session = session_in(tmp_path, gutter)
    last = anyio.run(session.to_the_end)
    assert (tmp_path / FILE).read_text() == MODULE
    assert last == f"Done: 17 functions of {FILE} are restored and the whole suite passes."


def test_it_works_as_a_person_would(tmp_path: Path) -> None:
    session = run_clean(tmp_path)
    assert session.names[:3] == ["glob", "grep", "read"]
    assert session.names[-1] == "bash"
    assert session.names.count("bash") == 2, "once in between, once at the end"
    edits = [len([p for p in m.parts if isinstance(p, ToolCallPart) and p.name == "edit"]) for m in session.messages]
    assert {1, 2} <= set(edits)
    assert set(session.names) <= set(TOOLS)
    paths = [
        p.input["file_path"]
        for m in session.messages
        for p in m.parts
        if isinstance(p, ToolCallPart) and "file_path" in p.input
    ]
    assert set(paths) == {FILE}, "paths are relative to the workspace"


@pytest.fixture(scope="module")
def clean_calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls a run without trouble makes."""
    return run_clean(tmp_path_factory.mktemp("clean")).calls


@pytest.mark.parametrize("kind", TROUBLES)
def test_trouble_with_any_one_call_changes_nothing_of_the_outcome(kind: str, clean_calls: int, tmp_path: Path) -> None:
    for at in range(clean_calls):
        folder = tmp_path / str(at)
        session = session_in(folder)
        session.before = lambda number, name, value, at=at: TROUBLES[kind] if number == at else None  # type: ignore[misc]
        last = anyio.run(session.to_the_end)
        assert (folder / FILE).read_text() == MODULE, f"{kind} at call {at}"
        assert last.startswith("Done:"), f"{kind} at call {at}: {last}"


def test_after_an_unknown_edit_it_looks_before_it_acts(tmp_path: Path) -> None:
    for kind in ("unknown, it ran", "unknown, it did not run"):
        session = session_in(tmp_path / kind)
        hit: list[int] = []

        def once(
            number: int, name: str, value: dict[str, Any], kind: str = kind, hit: list[int] = hit
        ) -> Trouble | None:
            if name == "edit" and not hit:
                hit.append(number)
                return TROUBLES[kind]
            return None

        session.before = once
        anyio.run(session.to_the_end)
        after = session.names[hit[0] + 1 :]
        assert after[0] == "read"
        edits = [
            p.input["new_string"]
            for m in session.messages
            for p in m.parts
            if isinstance(p, ToolCallPart) and p.name == "edit"
        ]
        assert len(edits) - len(set(edits)) == (0 if kind == "unknown, it ran" else 1)


def test_a_file_that_somebody_else_changed_is_read_again(tmp_path: Path) -> None:
    session = session_in(tmp_path)

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if number == 6:
            path = tmp_path / FILE
            path.write_text("# hello\n" + path.read_text())

    session.before = somebody
    anyio.run(session.to_the_end)
    assert (tmp_path / FILE).read_text() == "# hello\n" + MODULE
    assert session.names[6:8] == ["edit", "read"]


def test_work_that_was_undone_is_done_again(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    stripped = (tmp_path / FILE).read_text()

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if number == 12:
            (tmp_path / FILE).write_text(stripped)

    session.before = somebody
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE


def test_work_that_was_undone_before_the_last_suite_is_found_by_looking(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    stripped = (tmp_path / FILE).read_text()

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if value.get("command") == RUN_SUITE and session.names.count("bash") == 1:
            (tmp_path / FILE).write_text(stripped)

    session.before = somebody
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE
    assert "read" in session.names[session.names.index("bash") + 1 :]


def test_a_person_is_answered_and_the_work_goes_on(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    session.says = {5: "Mind the\n commas, please."}
    last = anyio.run(session.to_the_end)
    assert session.words[5].startswith('Understood: "Mind the commas, please.".')
    assert [word for word in session.words if word.startswith("Understood")] == [session.words[5]]
    assert last.startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE
    session.messages.append(Message("user", (TextPart("And now?"),)))
    assert anyio.run(session.to_the_end).startswith('Understood: "And now?". Done:')
    assert session.messages[-1].parts[1:] == (), "nothing more was asked for"


def test_the_goal_itself_is_no_interruption(tmp_path: Path) -> None:
    assert not run_clean(tmp_path).words[0].startswith("Understood")


@pytest.mark.parametrize("tool", ["read", "edit", "bash"])
def test_when_a_tool_always_fails_it_says_that_it_is_stuck(tool: str, tmp_path: Path) -> None:
    session = session_in(tmp_path)
    session.before = lambda number, name, value: TROUBLES["denied"] if name == tool else None
    last = anyio.run(session.to_the_end)
    assert last.startswith("I am stuck:")
    assert session.names.count(tool) <= 2 * TRIES_MAX
    session.before = lambda number, name, value: None
    session.messages.append(Message("user", (TextPart("It is allowed now."),)))
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE


def test_when_the_suite_does_not_pass_it_does_not_claim_so(tmp_path: Path) -> None:
    session = session_in(tmp_path, suite=SUITE.replace("== 7", "== 8"))
    last = anyio.run(session.to_the_end)
    assert last.startswith("I am stuck: the test suite did not pass 3 times.")
    assert (tmp_path / FILE).read_text() == MODULE


LONG = (
    MODULE
    + "\n\n\n"
    + "\n\n".join(
        f"def function_{number}(value):\n    # {'x' * 60}\n"
        + "".join(f"    value += {step}  # {'y' * 50}\n" for step in range(12))
        + "    return value"
        for number in range(80)
    )
    + "\n"
)


def test_a_long_module_is_read_in_pieces_that_fit(tmp_path: Path) -> None:
    session = session_in(tmp_path, module=LONG)
    sizes: list[int] = []
    plain = session.tools.run

    def run(name: str, value: dict[str, Any]) -> tuple[bool, str]:
        ok, output = plain(name, value)
        if name == "read":
            assert ok, output
            sizes.append(len(output))
        return ok, output

    session.tools.run = run  # type: ignore[method-assign]
    session.before = lambda number, name, value: (
        TROUBLES["unknown, it ran"] if name == "edit" and number in (20, 50, 80) else None
    )
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == LONG
    assert len(sizes) > 4
    assert max(sizes) < OUTPUT_CAP


def test_every_piece_of_work_is_whole_in_one_piece_of_reading(tmp_path: Path) -> None:
    session = session_in(tmp_path, module=LONG)
    text = (tmp_path / FILE).read_text().split("\n")
    anyio.run(session.one_response)
    for done in (False, True):
        if done:
            text = LONG.split("\n")
            session.messages += _all_edited(session.manifest)
        calls = _calls(anyio.run(session.parts), 0)
        ranges = [call.input["view_range"] for call in calls]
        assert len(ranges) > 2 or not done
        assert (ranges[0][0], ranges[-1][1]) == (1, -1)
        pieces = ["\n".join(text[first - 1 : last if last > 0 else None]) for first, last in ranges]
        for block in session.manifest.blocks:
            assert any((block.true if done else block.stub) in piece for piece in pieces), block.functions


def _all_edited(manifest: Manifest) -> list[Message]:
    """A conversation in which everything was restored and then something went wrong with the suite."""
    calls: list[tuple[str, dict[str, Any], bool]] = []
    for block in manifest.blocks:
        calls.append(("edit", {"file_path": FILE, "old_string": block.stub, "new_string": block.true}, True))
    calls.append(("bash", {"command": RUN_SUITE}, False))
    asked = tuple(ToolCallPart(f"9.{number}", name, value) for number, (name, value, _) in enumerate(calls))
    ended = tuple(ToolResultPart(f"9.{number}", name, "", not ok) for number, (name, _, ok) in enumerate(calls))
    return [Message("assistant", asked), Message("user", ended)]


# --- purity, streaming, money ---


@settings(max_examples=25)
@given(plan=st.dictionaries(st.integers(0, 40), st.sampled_from(sorted(TROUBLES)), max_size=6))
def test_any_plan_of_troubles_ends_with_the_truth_or_says_that_it_is_stuck(
    plan: dict[int, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    session = session_in(folder)
    session.before = lambda number, name, value: TROUBLES[plan[number]] if number in plan else None
    last = anyio.run(session.to_the_end)
    if last.startswith("Done:"):
        assert (folder / FILE).read_text() == MODULE
    else:
        assert last.startswith("I am stuck:")
        assert len(plan) >= TRIES_MAX


def test_a_response_is_a_function_of_the_conversation(tmp_path: Path) -> None:
    session = run_clean(tmp_path)
    for length in range(1, len(session.messages), 2):
        asked = ModelRequest("turn", "system", tuple(session.messages[:length]), (), 8192, 0, 1)

        async def parts(model: OracleModel, asked: ModelRequest = asked) -> list[StreamPart]:
            return [part async for part in model.stream(asked)]

        model = session.model()
        assert anyio.run(parts, model) == anyio.run(parts, model) == anyio.run(parts, session.model())


def test_it_streams_in_pieces_with_the_asked_pause(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    clock = VirtualClock()
    model = OracleModel(session.manifest, RUN_SUITE, clock, delta_s=0.5)

    async def first() -> list[StreamPart]:
        return [part async for part in model.stream(session.request())]

    parts = anyio.run(first)
    assert model.name == "oracle:made"
    assert sum(isinstance(part, TextDelta) for part in parts) > 1
    assert isinstance(parts[-1], Finish)
    assert sum(isinstance(part, Finish) for part in parts) == 1
    assert clock.slept == 0.5 * (len(parts) - 1)


def test_money_moves_and_the_worst_case_bounds_it(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    finish = anyio.run(session.parts)[-1]
    assert isinstance(finish, Finish)
    model = session.model()
    cost = model.cost_pico(finish.usage)
    worst = model.worst_case_pico(session.request())
    assert cost is not None
    assert worst is not None
    assert 0 < cost < worst
    longest = Usage(input_tokens=finish.usage.input_tokens, output_tokens=8192)
    assert worst == model.cost_pico(longest)
