"""The sessions that are killed: scripts whose every effect counts itself.

A command appends a line with a key of its own to `effects`, a file beside the artifact, so that an
effect that happened twice, or never, shows. Nothing in the output depends on when or how often the
brain died.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from holdfast.app.compose import PROGRAM, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace

EFFECTS = "effects"
ARTIFACT = "report.md"

_PRICE = {"input_per_mtok": 3.0, "output_per_mtok": 15.0}
_USAGE = {"input_tokens": 1000, "output_tokens": 100}
TURN_PICO = 4_500_000_000
"""What one turn costs, by the price and the usage above."""

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Story:
    """A script and what it does. `keys` are the effects, each once; `turns` counts model responses."""

    script: dict[str, Any]
    keys: tuple[str, ...]
    spare_turns: int = 3

    @property
    def budget_pico(self) -> int:
        """What all turns cost, and a few that die with their brain."""
        return TURN_PICO * (len(self.script["turns"]) + self.spare_turns)


def effect(key: str, then: str = "") -> Call:
    """A command that leaves its key in the effects, and says so."""
    return ("bash", {"command": f"printf '%s\\n' {key} >> {EFFECTS}; echo did {key}{then}"})


def slow(key: str, seconds: float) -> Call:
    """A command that leaves a key at its beginning and another at its end."""
    return effect(key, f"; sleep {seconds}; printf '%s\\n' {key}-end >> {EFFECTS}")


def write(path: str, content: str) -> Call:
    """Write a whole file."""
    return ("write", {"file_path": path, "content": content})


def edit(path: str, old: str, new: str) -> Call:
    """Edit a file. With `old` inside `new` a second application shows."""
    return ("edit", {"file_path": path, "old_string": old, "new_string": new})


def turn(text: str, *calls: Call, **more: Any) -> dict[str, Any]:
    """One response."""
    return {
        "text": text,
        "tool_calls": [{"name": name, "input": value} for name, value in calls],
        "usage": _USAGE,
        **more,
    }


FINISH = turn("", ("bash", {"command": f"cat {EFFECTS} notes.md part.txt > {ARTIFACT}; cat {ARTIFACT} | wc -l"}))

GOLDEN = Story(
    {
        "price": _PRICE,
        "turns": [
            turn("I begin.", effect("one")),
            turn("", write("notes.md", "# Notes\n- one\n")),
            turn("", effect("two"), effect("three")),
            turn("", edit("notes.md", "- one\n", "- one\n- two\n")),
            turn("", ("read", {"file_path": "notes.md"}), ("glob", {"pattern": "*.md"}), ("grep", {"pattern": "two"})),
            turn("", slow("four", 0.03)),
            turn("Then this.", write("part.txt", "part\n"), effect("five"), thinking="One more."),
            FINISH,
            turn("All is done."),
        ],
    },
    ("one", "two", "three", "four", "four-end", "five"),
)
"""About sixty events."""

SHORT = Story(
    {
        "price": _PRICE,
        "turns": [
            turn("I begin.", effect("one"), delay_s=0.05),
            turn("", write("notes.md", "# Notes\n- one\n"), effect("two")),
            turn("", slow("three", 0.3)),
            turn("", write("part.txt", "part\n"), edit("notes.md", "- one\n", "- one\n- two\n"), delay_s=0.05),
            turn("", ("read", {"file_path": "notes.md"}), ("grep", {"pattern": "two"})),
            FINISH,
            turn("All is done."),
        ],
    },
    ("one", "two", "three", "three-end"),
    spare_turns=2,
)
"""Made to be killed at any moment: waits on the model, commands, a slow one, files."""


def story(*turns: dict[str, Any], keys: tuple[str, ...]) -> Story:
    """A story of these turns and a last word."""
    return Story({"price": _PRICE, "turns": [*turns, turn("All is done.")]}, keys)


@dataclass(frozen=True)
class Session:
    """An opened session in a home of its own."""

    home: Path
    session_id: str
    workspace: Path


def open_session(home: Path, story: Story, *, sandbox: bool = True, budget_pico: int | None = None) -> Session:
    """Open that story's session in a new home, as `holdfast run` does, and run nothing."""
    home.mkdir(mode=0o711)
    script = home / "script.json"
    script.write_text(json.dumps(story.script))
    return anyio.run(_open, home, story, sandbox, budget_pico)


async def _open(home: Path, story: Story, sandbox: bool, budget_pico: int | None) -> Session:
    async with open_runtime(Settings(home=str(home))) as runtime:
        session_id = runtime.intake.new_session_id()
        workspace = runtime.home.workspaces / session_id
        workspace.mkdir(mode=0o755)
        created = SessionCreated(
            goal="Count to three.",
            agent=Agent(model=f"scripted:{home / 'script.json'}"),
            workspace=Workspace(str(workspace), True, "", "sandbox" if sandbox else "none"),
            limits=Limits(budget_pico=story.budget_pico if budget_pico is None else budget_pico),
            accounts=(session_id,),
            program=PROGRAM,
        )
        await runtime.intake.open(session_id, created)
    return Session(home, session_id, workspace)
