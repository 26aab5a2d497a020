"""Folders and commands for tests of `holdfast loop`: small real programs in the place of coding agents."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.app.terminal import Said, Type

MINE = ("--take-over",) if os.geteuid() == 0 else ()
"""Root gives the folder to the user whom commands run as."""

DOES = 'id=$(grep -o "US-00[0-9]" | head -1); touch "$id"'
"""A command that does the first item which its prompt names."""


def story(number: int, **fields: Any) -> dict[str, Any]:
    """An item that is done when its file is there."""
    name = f"US-00{number}"
    item = {"id": name, "title": f"Make {name}", "acceptanceCriteria": ["it is there"], "check": f"test -e {name}"}
    return {**item, "priority": number, "passes": False, "notes": "", **fields}


def project(at: Path, *stories: dict[str, Any], **files: str) -> Path:
    """A folder with a prd.json of these items, and more files."""
    at.mkdir()
    if stories:
        (at / "prd.json").write_text(json.dumps({"project": "x", "userStories": list(stories)}, indent=2) + "\n")
    for name, text in files.items():
        (at / name.replace("__", ".")).write_text(text)
    return at


def passes(folder: Path) -> dict[str, bool]:
    """Which items of the folder's prd.json are said to pass."""
    value = json.loads((folder / "prd.json").read_text())
    return {item["id"]: item["passes"] for item in value.get("userStories") or value["tasks"]}


def loop(type: Type, folder: Path, *words: str, command: str = DOES) -> Said:
    """A whole loop with a shell script as its command."""
    return type("loop", "--workspace", folder, *MINE, *words, "--", "bash", "-c", command)


def plans(home: Path) -> list[dict[str, Any]]:
    """The plans of the loops in a home, from the log."""
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        bodies = connection.execute("select body from events where type = 'agent.tool_result' order by seq").fetchall()
    contents = [json.loads(body)["fact"]["content"] for (body,) in bodies]
    return [json.loads(content) for content in contents if content.startswith('{"kind":')]
