"""Time to the first token and to the first tool result, with hands made lazily or eagerly.

python bench/ttft.py [--runs N] [--delay S]

A scripted model answers after `--delay`. At 0 % tool share it only sends text; at 100 % it calls `bash` at
once. Lazy and eager runs alternate, each in a new session with real hands. Medians in ms. Targets: at 0 %,
lazy saves the provisioning time within 20 %; at 100 %, its first result comes at most 20 ms after the eager one.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.model.base import StreamPart

Way = Literal["lazy", "eager"]

TALK = '{"turns": [{"text": "a few words", "delay_s": %s}]}'
ACT = '{"turns": [{"delay_s": %s, "tool_calls": [{"name": "bash", "input": {"command": "true"}}]}, {"text": "done"}]}'


class Stopwatch:
    """An observer that notes when things were first seen, in ms since the shift began."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began_s = 0.0
        self.first_token_ms: float | None = None
        self.first_result_ms: float | None = None
        self.provisioned_ms: float | None = None
        self.asked_ms: float | None = None

    def _now_ms(self) -> float:
        return (self._clock.monotonic_s() - self._began_s) * 1000

    def on_events(self, events: list[Event]) -> None:
        """Note the first of each kind."""
        for event in events:
            match event.fact:
                case ShiftStarted():
                    self._began_s = self._clock.monotonic_s()
                case HandsProvisioned() if self.provisioned_ms is None:
                    self.provisioned_ms = self._now_ms()
                case ModelRequestStart() if self.asked_ms is None:
                    self.asked_ms = self._now_ms()
                case ToolResult() if self.first_result_ms is None:
                    self.first_result_ms = self._now_ms()
                case _:
                    pass

    def on_delta(self, part: StreamPart) -> None:
        """Note the first token."""
        if self.first_token_ms is None:
            self.first_token_ms = self._now_ms()


async def one(runtime: Runtime, script: Path, way: Way) -> Stopwatch:
    """A new session from wake to done."""
    watch = Stopwatch()
    session_id = runtime.intake.new_session_id()
    folder = runtime.home.workspaces / session_id
    folder.mkdir()
    workspace = Workspace(str(folder), True)
    created = SessionCreated(goal="bench", agent=Agent(model=f"scripted:{script}"), workspace=workspace)
    await runtime.intake.open(session_id, created)
    await wake(session_id, replace(runtime.doors(workspace, observer=watch), provisioning=way))
    return watch


async def measure(home: str, runs: int, delay_s: float) -> dict[tuple[str, Way], list[Stopwatch]]:
    """All runs, ways interleaved."""
    found: dict[tuple[str, Way], list[Stopwatch]] = {}
    scripts = {"0 %": TALK, "100 %": ACT}
    async with open_runtime(Settings(home=home)) as runtime:
        for name, text in scripts.items():
            script = Path(home) / f"{name.split()[0]}.json"
            script.write_text(text % delay_s)
            for turn in range(runs + 1):
                for way in ("lazy", "eager"):
                    watch = await one(runtime, script, way)
                    if turn:
                        found.setdefault((name, way), []).append(watch)
    return found


def median(watches: list[Stopwatch], field: str) -> float:
    """The median of one reading."""
    readings: list[float] = [getattr(watch, field) for watch in watches]
    return statistics.median(readings)


def main() -> None:
    """Measure, print a table, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure lazy against eager provisioning")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--delay", type=float, default=0.3, help="seconds until the model's first token")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)
        found = anyio.run(measure, home, args.runs, args.delay)
    print(
        f"{args.runs} runs each, medians in ms; first token after {args.delay} s; "
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    token = {way: median(found["0 %", way], "first_token_ms") for way in ("lazy", "eager")}
    result = {way: median(found["100 %", way], "first_result_ms") for way in ("lazy", "eager")}
    cost = median(found["0 %", "eager"], "provisioned_ms")
    print(f"{'':26}{'lazy':>8}{'eager':>8}")
    print(f"{'0 %: first token':26}{token['lazy']:>8.1f}{token['eager']:>8.1f}")
    print(f"{'100 %: first tool result':26}{result['lazy']:>8.1f}{result['eager']:>8.1f}")
    saved = token["eager"] - token["lazy"]
    print(f"making hands takes {cost:.1f} ms; at 0 % lazy saves {saved:.1f} ms, {saved / cost:.0%} of it")
    good = abs(saved / cost - 1) <= 0.2 and result["lazy"] <= result["eager"] + 20
    print(f"targets (saves 80–120 %; result ≤ eager + 20 ms): {'met' if good else 'MISSED'}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
