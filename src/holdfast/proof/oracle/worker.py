"""Oracle as a worker of a mission: it writes the true bodies of its item, or has one of its faults.

It derives its progress from the conversation, and the content of a file from the latest read. After each message (work
sent back, a nudge) it reads its files again, and its faults become rarer. The text of a turn names its fault, for
reports from the log.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.model.base import ModelRequest
from holdfast.proof.oracle.answers import MissionAnswers
from holdfast.proof.oracle.base import contains, height, shown_lines
from holdfast.proof.oracle.faults import (
    FAULT_PREFIX,
    UNDO_PREFIX,
    Fault,
    mutants,
    nothing_done,
    one_mutant,
    paths_of,
    put_command,
    script_of,
)
from holdfast.proof.rebuild.items import WorkItem, there_with
from holdfast.proof.tampers import TAMPERS, Edits, NothingToTamper
from holdfast.session.context.conversation import TextPart
from holdfast.sim.turns import Outcome, Turn, history

READ_BYTES = 24_000
EDITS_IN_A_TURN = 12
TRIES_MAX = 2
"""Failures before the worker submits its task as blocked."""

REPEATS_MAX = 40
"""Repetitions of a stuck worker that nothing stops."""

CHECK_TIMEOUT_MS = 300_000

MEND = "Mend what it leans on"
"""Words of a later plan for a task whose worker was blocked; its worker looks for them."""

_LINE = "# looked at by "


@dataclass
class _Seen:
    """State of the work. `text` is the last known text of each body, `unread` are files to read."""

    unread: set[str]
    read: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    text: dict[int, str] = field(default_factory=dict)
    told: int = 0
    beside: set[str] = field(default_factory=set)
    faulted: bool = False
    undo: bool = False
    failures: int = 0
    checked: str = ""
    repeats: int = 0
    trouble: int = 0


class OracleWorker:
    """Next turn of a worker, from its conversation."""

    def __init__(self, answers: MissionAnswers) -> None:
        self._answers = answers

    def next_turn(self, item: WorkItem, goal: str, request: ModelRequest, before: int) -> Turn:
        """Return the next turn. `before` counts earlier workers on this item."""
        if MEND in goal:
            item = widened(item, self._answers)
        seen = self._seen(item, request)
        times = before + seen.told + renewals(request) + len(re.findall(r"(?m)^- sent back \(", goal))
        fault = self._answers.fault("worker", item.name, times)
        if seen.trouble > TRIES_MAX:
            return _hand_in("blocked", "The files could not be read or changed.", "blocked: the tools fail")
        if seen.undo:
            return Turn("What I did beside my task goes away again.", (_bash(self._undoing(item, seen)),))
        if seen.unread:
            calls = tuple(call for file in sorted(seen.unread) for call in reads(self._answers, file))
            return Turn(f"I read {', '.join(sorted(seen.unread))}.", calls)
        if fault is not None:
            turn = self._faulty(fault, item, seen, times)
            if turn is not None:
                return turn
        return self._honest(item, seen)

    # --- past ---

    def _seen(self, item: WorkItem, request: ModelRequest) -> _Seen:
        seen = _Seen(set(item.files))
        for happened in history(request.messages):
            if isinstance(happened, str):
                seen = _Seen(
                    set(item.files) | seen.edited,
                    told=seen.told + 1,
                    edited=seen.edited,
                    beside=seen.beside,
                    undo=bool(seen.beside),
                )
                continue
            self._take(item, seen, happened)
        return seen

    def _take(self, item: WorkItem, seen: _Seen, outcome: Outcome) -> None:
        file = str(outcome.input.get("file_path", ""))
        match outcome.name:
            case "read":
                self._take_read(seen, file, outcome)
            case "edit":
                self._take_edit(seen, file, outcome)
            case "bash":
                self._take_bash(item, seen, outcome)

    def _take_read(self, seen: _Seen, file: str, outcome: Outcome) -> None:
        if not outcome.ok:
            seen.trouble += 1
            return
        seen.unread.discard(file)
        seen.read.add(file)
        blocks = {number: block for number, block in enumerate(self._answers.bodies) if block.file == file}
        shown = shown_lines(outcome.content, tuple(blocks.values()))
        for number, block in blocks.items():
            for text in (block.true, block.stub, *mutants(block)):
                if contains(shown, text):
                    seen.text[number] = text
                    break

    def _take_edit(self, seen: _Seen, file: str, outcome: Outcome) -> None:
        if not outcome.ok:
            # Refused, skipped, or unknown: the file itself has the answer.
            seen.trouble += 1
            seen.unread.add(file)
            return
        seen.edited.add(file)
        for number, block in enumerate(self._answers.bodies):
            old, new = outcome.input.get("old_string"), outcome.input.get("new_string")
            if block.file == file and seen.text.get(number) == old and new in (block.true, *mutants(block)):
                seen.text[number] = str(new)

    def _take_bash(self, item: WorkItem, seen: _Seen, outcome: Outcome) -> None:
        command = str(outcome.input.get("command", ""))
        if command == self._answers.commands.get(item.name):
            seen.checked = "pass" if outcome.ok else "fail"
            if not outcome.ok:
                seen.failures += 1
                seen.unread.update(item.files)
        elif command.startswith(FAULT_PREFIX):
            seen.faulted = True
            seen.repeats += 1
            seen.beside.update(paths_of(command))
        elif command.startswith(UNDO_PREFIX):
            seen.undo = False
            seen.beside.clear()

    # --- honest workers ---

    def _honest(self, item: WorkItem, seen: _Seen) -> Turn:
        wanted = {number: self._answers.bodies[number].true for number in item.bodies}
        # It also repairs damage by other workers in its files, since its own tests may need it.
        for number, text in seen.text.items():
            if number not in wanted and text in mutants(self._answers.bodies[number]):
                wanted[number] = self._answers.bodies[number].true
        edits = self._edits(wanted, seen)
        if edits:
            return edits
        missing = [number for number in item.bodies if number not in seen.text]
        if missing:
            return _hand_in("blocked", "Parts of the files are not what they were.", "blocked: I do not know my files")
        command = self._answers.commands.get(item.name)
        if command and seen.checked != "pass":
            if seen.failures >= TRIES_MAX:
                notes = "All bodies are written, and tests of mine fail: something that they need is missing."
                return _hand_in("blocked", notes, "I am blocked.")
            return Turn("All is written. Now its tests.", (_bash(command, CHECK_TIMEOUT_MS),))
        return _hand_in("done", f"{len(item.bodies)} bodies are written; the tests of this item pass.", "Done.")

    def _edits(self, wanted: Mapping[int, str], seen: _Seen, words: str = "") -> Turn | None:
        """Return the remaining edits until the bodies have these texts; None if there are none."""
        changed = [number for number, text in wanted.items() if seen.text.get(number, text) != text]
        calls = tuple(
            _edit(self._answers.bodies[number].file, seen.text[number], wanted[number])
            for number in changed[:EDITS_IN_A_TURN]
        )
        if not calls:
            return None
        names = ", ".join(
            name for number in changed[:EDITS_IN_A_TURN] for name in self._answers.bodies[number].functions
        )
        return Turn(f"{words}Writing {names}.", calls)

    # --- faulty workers ---

    def _faulty(self, fault: Fault, item: WorkItem, seen: _Seen, times: int) -> Turn | None:
        """Return the next turn with a fault; None if the fault has no further effect and the rest is honest."""
        chooser = self._answers.chooser(fault.kind, item.name, times)
        mark = _mark(fault, item)
        match fault.kind:
            case "anxious":
                return Turn(
                    f"{mark}There may not be enough room left for this. I stop here; the rest can be done later."
                )
            case "stuck":
                if seen.repeats >= REPEATS_MAX:
                    return _hand_in("blocked", "It does not work.", f"{mark}I give up.")
                return Turn(f"{mark}Once more.", (_bash(f"{FAULT_PREFIX}cat no-such-file-{item.name}"),))
            case "early_done":
                half = item.bodies[: len(item.bodies) // 2]
                edits = self._edits({number: self._answers.bodies[number].true for number in half}, seen, mark)
                return edits or _hand_in("done", "Everything is written and all tests pass.", f"{mark}Done.")
            case "wrong_body":
                wrong = chooser.choice(item.bodies)
                bodies = {number: self._answers.bodies[number].true for number in item.bodies}
                bodies[wrong] = one_mutant(self._answers.bodies[wrong], chooser)
                edits = self._edits(bodies, seen, mark)
                return edits or _hand_in("done", "All bodies are written.", f"{mark}Done.")
            case "regress":
                return self._regress(item, seen, mark)
            case _:
                return self._beside(fault, item, seen, mark, times)

    def _regress(self, item: WorkItem, seen: _Seen, mark: str) -> Turn | None:
        """Write all own bodies, and empty a finished one of another item: in an own file, else in a dependency's."""
        bodies = {number: self._answers.bodies[number].true for number in item.bodies}
        others = sorted(number for number in seen.text if number not in bodies)
        broken = [number for number in others if seen.text[number] == nothing_done(self._answers.bodies[number])]
        finished = [number for number in others if seen.text[number] == self._answers.bodies[number].true]
        if not broken and not finished:
            near = [self._answers.item(name) for name in item.depends]
            files = sorted({file for other in near if other for file in other.files} - set(item.files))
            unread = [file for file in files[:1] if file not in seen.read]
            calls = tuple(call for file in unread for call in reads(self._answers, file))
            return Turn(f"I look at {', '.join(unread)} too.", calls) if calls else None
        victim = (broken or finished)[0]
        bodies[victim] = nothing_done(self._answers.bodies[victim])
        edits = self._edits(bodies, seen, mark)
        return edits or _hand_in("done", "All bodies are written, and some code is simpler now.", f"{mark}Done.")

    def _beside(self, fault: Fault, item: WorkItem, seen: _Seen, mark: str, times: int) -> Turn | None:
        """Write all own bodies, then run one command with a side effect."""
        if seen.faulted:
            # It runs no tests, since its side effect may make them pass.
            return _hand_in("done", "All bodies are written; the tests pass.", f"{mark}Done.")
        edits = self._edits({number: self._answers.bodies[number].true for number in item.bodies}, seen)
        if edits:
            return edits
        script = FAULT_PREFIX + self._script(fault, item, times)
        return Turn(f"{mark}And something besides.", (_bash(script),))

    def _script(self, fault: Fault, item: WorkItem, times: int) -> str:
        match fault.kind:
            case "wander":
                return self._wander(item)
            case "conflict":
                return self._conflict(item)
            case _:
                edits = self._tamper(fault, item, times)
                return script_of({path: put_command(path, edit.content, edit.mode) for path, edit in edits.items()})

    def _wander(self, item: WorkItem) -> str:
        """Add a file and a dependency beyond the task."""
        folder = item.files[0].rpartition("/")[0]
        extra = f"{folder}/extras_{item.name.lower()}.py" if folder else f"extras_{item.name.lower()}.py"
        parts = {extra: put_command(extra, b'"""More."""\n\n\ndef more():\n    return 1\n', "100644")}
        if "pyproject.toml" in self._answers.files:
            data = self._answers.files["pyproject.toml"]
            more = data.replace(b"dependencies = [", b'dependencies = ["left-pad>=1", ', 1)
            parts["pyproject.toml"] = put_command(
                "pyproject.toml", more if more != data else data + b"\n# more\n", "100644"
            )
        return script_of(parts)

    def _conflict(self, item: WorkItem) -> str:
        """Insert a line at the top of another item's file, so that workers with this fault conflict."""
        others = [block.file for block in self._answers.bodies if block.file not in item.files]
        path = min(others or item.files)
        line = shlex.quote(f"1i {_LINE}{item.name}")
        return script_of({path: f"sed -i {line} {shlex.quote(path)}"})

    def _tamper(self, fault: Fault, item: WorkItem, times: int) -> Edits:
        files = self._files(item)
        if fault.name:
            names = [fault.name]
        else:
            names = sorted(TAMPERS)
            self._answers.chooser("tamper", item.name, times).shuffle(names)
        for name in names:
            try:
                return TAMPERS[name].make(files)
            except NothingToTamper:
                continue
        return {}

    def _files(self, item: WorkItem) -> dict[str, bytes]:
        """Return the files that a tamper may use: own modules as finished, and all files without stripped bodies."""
        with_bodies = {block.file for block in self._answers.bodies}
        files = {path: data for path, data in self._answers.files.items() if path not in with_bodies}
        for path in item.files:
            files[path] = _restored(self._answers, path)
        return files

    def _undoing(self, item: WorkItem, seen: _Seen) -> str:
        """Build a command that undoes the side effects of a fault."""
        modules = {block.file for block in self._answers.bodies}
        lines = []
        for path in sorted(seen.beside):
            if path in item.files:
                lines.append(put_command(path, _restored(self._answers, path), "100644"))
            elif path in modules:
                lines.append(f"sed -i '/^{_LINE}/d' {shlex.quote(path)}")
            else:
                lines.append(put_command(path, self._answers.files.get(path), "100644"))
        return UNDO_PREFIX + " && ".join(lines)


def widened(item: WorkItem, answers: MissionAnswers) -> WorkItem:
    """Return the item with all its dependencies: a judge may have accepted a missing body."""
    bodies = tuple(sorted(there_with(item, answers.items)))
    files = tuple(sorted({answers.bodies[number].file for number in bodies}))
    return msgspec.structs.replace(item, bodies=bodies, files=files)


def reads(answers: MissionAnswers, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the calls that read all of a file, in pieces if it is long."""
    blocks = [block for block in answers.bodies if block.file == file]
    text = answers.files[file].decode()
    added = sum(len(block.true) - len(block.stub) for block in blocks)
    lines = text.count("\n") + sum(height(block.true) - height(block.stub) for block in blocks)
    shown = len(text) + added + 8 * lines
    if shown <= READ_BYTES:
        yield "read", {"file_path": file}
        return
    overlap = max(height(block.true) for block in blocks)
    piece = max(2 * overlap, lines * READ_BYTES // shown)
    # The file's present length is unknown: at most the true one plus some lines. Reads beyond its end return nothing.
    for first in range(1, lines + overlap, piece - overlap):
        yield "read", {"file_path": file, "view_range": [first, first + piece - 1]}


def _restored(answers: MissionAnswers, path: str) -> bytes:
    text = answers.files[path].decode()
    for block in answers.bodies:
        if block.file == path:
            text = text.replace(block.stub, block.true, 1)
    return text.encode()


def _bash(command: str, timeout_ms: int = 60_000) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, "timeout_ms": timeout_ms}


def _edit(file: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit", {"file_path": file, "old_string": old, "new_string": new}


def _hand_in(status: str, notes: str, words: str) -> Turn:
    return Turn(words, (("hand_in", {"status": status, "notes": notes}),))


def _mark(fault: Fault, item: WorkItem) -> str:
    return fault_mark(fault.kind, item.name)


def renewals(request: ModelRequest) -> int:
    """Return 1 if the context was renewed: more than the goal precedes the model's first turn."""
    texts = 0
    for message in request.messages:
        if message.role == "assistant":
            break
        texts += sum(isinstance(part, TextPart) for part in message.parts)
    return int(texts > 1)


def fault_mark(kind: str, what: str) -> str:
    """Return the start of the text of a turn with a fault, so that a report can count them from the log."""
    return f"[fault {kind} {what}] "
