"""Model that knows the answer: it restores a stripped library through the ordinary tools.

It reads the state of the work from tool results. After any error it reads the file before it edits again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import Clock
from holdfast.model.base import ModelRequest
from holdfast.proof.oracle.base import ComputedModel, contains, height, note, shown_lines
from holdfast.proof.rebuild.strip import Manifest, Module
from holdfast.session.context.conversation import Message, TextPart
from holdfast.sim.turns import Outcome, Turn, history

TRIES_MAX = 3
"""Failures of the same step before the oracle reports that it is stuck."""

QUICK_TESTS_EVERY = 8
"""Restored blocks between two runs of the quick tests."""

SEVERAL_EDITS = {4: 3, 8: 2}
"""Last digit of the number of restored blocks → edits in the next response, if not one."""

READ_BYTES = 24_000
"""A longer file is read in pieces, so that no result is truncated."""

_QUICK_TIMEOUT_MS = 120_000
_SUITE_TIMEOUT_MS = 900_000


@dataclass
class _Progress:
    """State of the work. `unseen` are modules that must be read before the next edit."""

    unseen: set[str]
    looked: bool = False
    done: set[int] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    edits_since_tests: int = 0
    passed: bool = False
    last_said: str = ""


class OracleModel(ComputedModel):
    """Model that restores the blocks of a manifest. `suite_command` and `quick_command` are shell commands."""

    def __init__(
        self, manifest: Manifest, suite_command: str, clock: Clock, *, quick_command: str = "", delta_s: float = 0.0
    ) -> None:
        super().__init__(f"oracle:{manifest.library.partition('==')[0]}", clock, delta_s)
        self._manifest = manifest
        self._suite_command = suite_command
        self._quick_command = quick_command

    def _next(self, request: ModelRequest) -> Turn:
        if request.purpose != "turn":
            return self._note(request)
        progress = self._progress(request.messages)
        turn = self._step(progress)
        if not progress.last_said:
            return turn
        first = " ".join(progress.last_said.split())[:120]
        return Turn(f'Understood: "{first}". {turn.text}', turn.calls)

    def _note(self, request: ModelRequest) -> Turn:
        """Return a summary or a handoff. The files show the progress, so the next context reads them."""
        files = ", ".join(module.file for module in self._manifest.modules)
        done = f"Parts of {files} were restored; which ones are still missing shows in the files themselves."
        return note(request, done, f"Read {files} before changing anything, then restore what is missing.")

    # --- past ---

    def _progress(self, messages: tuple[Message, ...]) -> _Progress:
        progress = _Progress({module.file for module in self._manifest.modules})
        for happened in history(messages):
            if isinstance(happened, str):
                # A user who sends a message may have removed the obstacle.
                progress.failures.clear()
                progress.last_said = happened
                continue
            self._take(progress, happened)
        if messages and not any(isinstance(part, TextPart) for part in messages[-1].parts):
            progress.last_said = ""
        return progress

    def _take(self, progress: _Progress, outcome: Outcome) -> None:
        match outcome.name:
            case "glob" | "grep":
                progress.looked = True
            case "read":
                self._take_read(progress, outcome)
            case "edit":
                self._take_edit(progress, outcome)
            case "bash":
                self._take_bash(progress, outcome)

    def _take_read(self, progress: _Progress, outcome: Outcome) -> None:
        file = str(outcome.input.get("file_path", ""))
        key = _read_key(file, outcome.input)
        if not outcome.ok:
            progress.failures[key] += 1
            progress.unseen.add(file)
            return
        progress.failures[key] = 0
        progress.unseen.discard(file)
        shown = shown_lines(outcome.content, self._manifest.blocks)
        for index, block in enumerate(self._manifest.blocks):
            if block.file != file:
                continue
            if contains(shown, block.stub):
                progress.done.discard(index)
            elif contains(shown, block.true):
                progress.done.add(index)
                progress.failures[f"edit {index}"] = 0

    def _take_edit(self, progress: _Progress, outcome: Outcome) -> None:
        index = self._index_of(outcome.input)
        if index is None:
            return
        key = f"edit {index}"
        if outcome.ok:
            progress.done.add(index)
            progress.failures[key] = 0
            progress.edits_since_tests += 1
        else:
            # Refused, denied, skipped, cancelled, or unknown: the file itself has the answer.
            progress.failures[key] += 1
            progress.unseen.add(self._manifest.blocks[index].file)

    def _take_bash(self, progress: _Progress, outcome: Outcome) -> None:
        command = outcome.input.get("command")
        if command == self._suite_command:
            progress.passed = outcome.ok
            progress.edits_since_tests = 0
            if not outcome.ok:
                progress.failures["suite"] += 1
                progress.unseen.update(module.file for module in self._manifest.modules)
        elif command == self._quick_command:
            progress.edits_since_tests = 0

    def _index_of(self, value: Mapping[str, Any]) -> int | None:
        for index, block in enumerate(self._manifest.blocks):
            if value.get("new_string") == block.true and value.get("file_path") == block.file:
                return index
        return None

    # --- next step ---

    def _step(self, progress: _Progress) -> Turn:
        worst, failures = max(progress.failures.items(), key=lambda item: item[1], default=("", 0))
        if progress.passed:
            return self._summary(progress)
        if failures >= TRIES_MAX:
            return self._stuck(progress, worst)
        if not progress.looked:
            return self._look()
        if progress.unseen:
            return self._read(progress)
        missing = [index for index in range(len(self._manifest.blocks)) if index not in progress.done]
        if not missing:
            return Turn("Everything is back. Now the whole suite.", (self._bash(self._suite_command, suite=True),))
        if self._quick_command and progress.edits_since_tests >= QUICK_TESTS_EVERY:
            text = f"{len(progress.done)} of {len(self._manifest.blocks)} pieces are back. A look at the nearest tests."
            return Turn(text, (self._bash(self._quick_command, suite=False),))
        return self._edit(progress, missing)

    def _look(self) -> Turn:
        calls = (("glob", {"pattern": "**/*.py"}), ("grep", {"pattern": "raise NotImplementedError"}))
        return Turn("First I look at what is there and what is missing.", calls)

    def _read(self, progress: _Progress) -> Turn:
        calls = []
        for module in self._manifest.modules:
            if module.file in progress.unseen:
                calls += [("read", value) for value in self._read_inputs(module, progress)]
        names = ", ".join(sorted(progress.unseen))
        again = "again " if progress.done or progress.failures else ""
        return Turn(f"I read {names} {again}before I change it.", tuple(calls))

    def _read_inputs(self, module: Module, progress: _Progress) -> Iterator[dict[str, Any]]:
        blocks = [(index, block) for index, block in enumerate(self._manifest.blocks) if block.file == module.file]
        missing = sum(height(block.true) - height(block.stub) for index, block in blocks if index not in progress.done)
        lines = module.lines - missing
        # The line-number gutter takes some bytes of each line.
        shown_bytes = module.bytes + 8 * module.lines
        if shown_bytes <= READ_BYTES:
            yield {"file_path": module.file}
            return
        overlap = max(height(block.true) for _, block in blocks)
        piece = max(2 * overlap, module.lines * READ_BYTES // shown_bytes)
        for first in range(1, lines + 1, piece - overlap):
            last = first + piece - 1
            yield {"file_path": module.file, "view_range": [first, last if last < lines else -1]}
            if last >= lines:
                return

    def _edit(self, progress: _Progress, missing: list[int]) -> Turn:
        count = SEVERAL_EDITS.get(len(progress.done) % 10, 1)
        chosen = [self._manifest.blocks[index] for index in missing[:count]]
        names = ", ".join(name for block in chosen for name in block.functions)
        calls = tuple(
            ("edit", {"file_path": block.file, "old_string": block.stub, "new_string": block.true}) for block in chosen
        )
        return Turn(f"Restoring {names}.", calls)

    def _bash(self, command: str, *, suite: bool) -> tuple[str, dict[str, Any]]:
        return "bash", {"command": command, "timeout_ms": _SUITE_TIMEOUT_MS if suite else _QUICK_TIMEOUT_MS}

    def _summary(self, progress: _Progress) -> Turn:
        functions = len(self._manifest.functions())
        files = ", ".join(module.file for module in self._manifest.modules)
        return Turn(f"Done: {functions} functions of {files} are restored and the whole suite passes.")

    def _stuck(self, progress: _Progress, worst: str) -> Turn:
        done, total = len(progress.done), len(self._manifest.blocks)
        if worst == "suite":
            what = "the test suite did not pass"
        elif worst.startswith("edit "):
            what = f"restoring {', '.join(self._manifest.blocks[int(worst[5:])].functions)} failed"
        else:
            what = f"{worst} failed"
        return Turn(f"I am stuck: {what} {TRIES_MAX} times. {done} of {total} pieces are restored; I stop here.")


def _read_key(file: str, value: Mapping[str, Any]) -> str:
    first, last = value.get("view_range") or (1, -1)
    return f"reading {file} from line {first} to {last}"
