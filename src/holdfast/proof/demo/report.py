"""Report of the demo, counted from the log and the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse, ModelRequestEnd
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.proof.demo.material import Material, Verdict
from holdfast.service.event_lines import counted
from holdfast.session.money import usd, usd_float


@dataclass(frozen=True)
class Counts:
    """Tool calls and costs in the log. `commands` are dispatched bash calls; an unknown cost is None."""

    calls: int
    dispatched: int
    dispatched_twice: int
    commands: int
    unknown: int
    without_end: int
    from_journal: int
    shifts: int
    presumed: int
    cost_pico: int | None


def count(events: list[Event]) -> Counts:
    """Count the events of the session."""
    facts = [event.fact for event in events]
    uses = {fact.call_id: fact.name for fact in facts if isinstance(fact, AgentToolUse)}
    dispatches = [fact.call_id for fact in facts if isinstance(fact, ToolDispatched)]
    results = [fact for fact in facts if isinstance(fact, ToolResult)]
    unknown = [fact for fact in facts if isinstance(fact, ToolOutcomeUnknown)]
    requests = [fact for fact in facts if isinstance(fact, ModelRequestEnd)]
    return Counts(
        calls=len(uses),
        dispatched=len(set(dispatches)),
        dispatched_twice=len(dispatches) - len(set(dispatches)),
        commands=sum(uses[call_id] == "bash" for call_id in set(dispatches)),
        unknown=len(unknown),
        without_end=len(uses) - len(results) - len(unknown),
        from_journal=sum(result.reconciled for result in results),
        shifts=sum(isinstance(fact, ShiftStarted) for fact in facts),
        presumed=sum(request.outcome == "presumed" for request in requests),
        cost_pico=None if any(each.cost_pico is None for each in requests) else sum(_costs(requests)),
    )


def _costs(requests: list[ModelRequestEnd]) -> list[int]:
    return [request.cost_pico for request in requests if request.cost_pico is not None]


@dataclass(frozen=True)
class Story:
    """Data that the report shows. `killed_at` is the position of the event, None without a kill."""

    session_id: str
    model: str
    material: Material
    counts: Counts
    verdict: Verdict
    killed_at: int | None
    killed_pid: int | None
    woken_s: float | None
    events: int
    chain_ok: bool
    wall_s: float
    status: str
    oracle: bool

    @property
    def delivered(self) -> bool:
        """True if the tests pass, no result was lost, and each command ran once."""
        return self.verdict.passed and not self.counts.without_end and self.once and self.chain_ok

    @property
    def once(self) -> bool:
        """True if each dispatched command ran exactly once (only known for the oracle's commands)."""
        return not self.oracle or self.material.effects() == self.counts.commands

    def lines(self) -> list[str]:
        """Return the report as text."""
        functions = len(self.material.manifest.functions())
        library = self.material.library
        rows = [
            ("library", f"{library.pin} ({library.licence}), {functions} functions of {library.module} taken out"),
            ("model", self._model()),
            ("killed", self._killed()),
            ("woken", self._woken()),
            *self._effects(),
            ("judged", self._judged()),
            ("log", self._log()),
            (
                "cost",
                f"{usd(self.counts.cost_pico)}{' at a nominal price' if self.oracle else ''}, {self.wall_s:.1f} s",
            ),
        ]
        return [f"  {name:<8} {text}" for name, text in rows]

    def _effects(self) -> list[tuple[str, str]]:
        counts = self.counts
        calls = counted(counts.calls, "tool call")
        rows = [
            ("calls", f"{calls}, {counts.dispatched} dispatched, {counts.dispatched_twice} twice"),
            ("lost", f"{counted(counts.without_end, 'result')}; {counted(counts.unknown, 'outcome')} unknown"),
        ]
        if self.oracle:
            commands = counted(counts.commands, "command")
            rows.append(("effects", f"{commands} dispatched, {self.material.effects()} ran, by their traces"))
        return rows

    def _log(self) -> str:
        events, shifts = counted(self.events, "event"), counted(self.counts.shifts, "shift")
        return f"{events}, {shifts}, chain {'verified' if self.chain_ok else 'BROKEN'}"

    def _model(self) -> str:
        if self.oracle:
            return "an oracle: it knew the true bodies. This shows the runtime, not the skill of a model"
        return self.model

    def _killed(self) -> str:
        if self.killed_at is None:
            return "nobody was killed"
        return f"process {self.killed_pid} with SIGKILL at event {self.killed_at}"

    def _woken(self) -> str:
        if self.woken_s is None:
            return "not needed"
        taken = self.counts.from_journal
        results = f"; {counted(taken, 'result')} taken from the hands' journal" if taken else ""
        return f"another process went on from the log {self.woken_s:.2f} s later{results}"

    def _judged(self) -> str:
        found = self.verdict.counts
        same = ",\n           the module is byte for byte the published one" if self.verdict.identical else ""
        state = "passed" if self.verdict.passed else "FAILED"
        bad = found.failed + found.errors
        return f"{state}: {found.passed} tests passed, {bad} failed, on a clean copy in fresh hands{same}"

    def public(self) -> dict[str, Any]:
        """Return the last line of `--json`."""
        return {
            "type": "result",
            "session_id": self.session_id,
            "status": self.status,
            "stop_reason": self.status,
            "exit_code": 0 if self.delivered else 1,
            "library": self.material.library.pin,
            "model": self.model,
            "killed_at": self.killed_at,
            "woken_s": self.woken_s,
            "calls": self.counts.calls,
            "dispatched": self.counts.dispatched,
            "dispatched_twice": self.counts.dispatched_twice,
            "unknown": self.counts.unknown,
            "lost": self.counts.without_end,
            "effects_expected": self.counts.commands if self.oracle else None,
            "effects": self.material.effects() if self.oracle else None,
            "tests": msgspec.to_builtins(self.verdict.counts),
            "identical": self.verdict.identical,
            "chain_ok": self.chain_ok,
            "cost_usd": usd_float(self.counts.cost_pico),
            "events": self.events,
            "wall_s": round(self.wall_s, 3),
        }
