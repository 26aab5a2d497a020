"""An action as people are shown it, and the digest that binds an approval to it (S6, S21)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.facts.session import Workspace
from holdfast.session.tools import Tool


def action_digest(name: str, value: dict[str, Any]) -> str:
    """SHA-256 hex of what a call would do: its tool and its input, keys sorted."""
    return hashlib.sha256(msgspec.json.encode([name, value], order="deterministic")).hexdigest()


def action_text(name: str, value: dict[str, Any]) -> str:
    """The whole of what a call would do, as text: nothing of it is left out."""
    if name == "bash" and set(value) == {"command"}:
        return f"bash: {value['command']}"
    lines = [f"{name}:"]
    for key, item in value.items():
        text = item if isinstance(item, str) else msgspec.json.encode(item, order="deterministic").decode()
        lines.append(f"  {key}: {text}" if "\n" not in text else f"  {key}:\n    " + text.replace("\n", "\n    "))
    return "\n".join(lines)


def touches(tool: Tool | None, workspace: Workspace) -> str:
    """How far an action can reach, in words."""
    if tool is None:
        return ""
    if tool.where == "process":
        return "whatever this function of the embedding program does; it runs outside the sandbox"
    if tool.where == "harness":
        return "this session's log and the sessions that it opens"
    if tool.read_only:
        return f"reads files of {workspace.path}"
    if workspace.isolation == "none":
        return "everything that this user can reach: there is no sandbox"
    return f"files of {workspace.path}; no network" if tool.name == "bash" else f"one file of {workspace.path}"
