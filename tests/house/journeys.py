"""Modules that three journeys enter, in order: `python -m tests.house.journeys` prints them.

A module counts once it runs a function between two facts of a log: importing it does not count, nor does what the
simulator does in place of a repository.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from holdfast.app.cli import main
from holdfast.facts.base import Fact
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.task import RepoMerged, TaskHandedIn
from holdfast.facts.tool import ToolResult
from holdfast.sim.loop import run
from holdfast.sim.missions.storm import MissionStorm
from holdfast.sim.missions.world import MissionWorld

SCRIPT = {"turns": [{"tool_calls": [{"name": "bash", "input": {"command": "echo hello"}}]}, {"text": "Done."}]}


class Recorder:
    """Records the modules of Holdfast whose functions run, and where each type of fact is first written."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.written: dict[type[Fact], int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """See `sys.setprofile`."""
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("holdfast.") or name.startswith("holdfast.sim."):
            return
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or a class
            return
        self.entered.append(name)
        if frame.f_code.co_name == "append" and name == "holdfast.log.transaction":
            for draft in frame.f_locals["drafts"]:
                self.written.setdefault(type(draft.draft.fact), len(self.entered))

    def record(self, work: Callable[[], object]) -> None:
        """Record what this work enters, in all threads that it starts."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def between(self, first: type[Fact] | None, last: type[Fact]) -> list[str]:
        """Return the modules entered between two facts, each once, in order; without `first`, from the beginning."""
        start = self.written[first] if first is not None else 0
        return list(dict.fromkeys(self.entered[start : self.written[last]]))


def journeys() -> dict[str, list[str]]:
    """Make the journeys and return the modules of each."""
    agent, mission = Recorder(), Recorder()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # without a sandbox, tool calls run as another user
        os.chdir(folder)
        Path("model.json").write_bytes(msgspec.json.encode(SCRIPT))
        words = [
            "run",
            "say hello",
            "--no-sandbox",
            "--scratch",
            "--model",
            "scripted:model.json",
            "--home",
            f"{folder}/home",
        ]
        agent.record(lambda: main(words))
        os.chdir("/")
    world = MissionWorld(1, calm=True)
    mission.record(lambda: run(world.loop, MissionStorm(world).run()))
    return {
        "goal to model request": agent.between(None, ModelRequestStart),
        "bash call to result": agent.between(ModelRequestEnd, ToolResult),
        "hand-in to main branch": mission.between(TaskHandedIn, RepoMerged),
    }


if __name__ == "__main__":
    made = journeys()
    if "--json" in sys.argv:
        print(msgspec.json.encode(made).decode())
    else:
        for journey, modules in made.items():
            print(f"{journey}: {len(modules)} modules", *modules, sep="\n    ")
