"""An action as people are shown it, and the digest that binds an approval to it (S6, S21)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import EgressPolicy, Environment, SessionCreated
from holdfast.session.tools import Tool
from holdfast.session.tools.effects import effects_of, told


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


def touches(
    tool: Tool | None,
    value: dict[str, Any],
    created: SessionCreated,
    policy: EgressPolicy,
    hands: HandsProvisioned | None,
) -> str:
    """How far an action can reach, in words for an approver. `policy` is the egress policy in force."""
    if tool is None:
        return ""
    if tool.where == "process":
        return "unknown: a function of the embedding program, which runs outside the sandbox"
    if tool.where == "harness":
        return "this session's log and the sessions that it opens"
    folder, own = created.workspace.path, own_programs(created, hands)
    effects = effects_of(tool.name, value, main=tool.main, folder=folder, own_programs=own)
    sealed = not created.hands.accept_weak if hands is None else hands.isolation.get("network") == "hard"
    return told(effects, created.workspace, policy, tool=tool.name, walled=sealed)


def own_programs(created: SessionCreated, hands: HandsProvisioned | None) -> bool:
    """Whether programs are also looked for in folders that the agent can write to."""
    prepared = created.environment != Environment() or bool(hands is not None and hands.environment)
    return prepared or "PATH" in created.workspace.env
