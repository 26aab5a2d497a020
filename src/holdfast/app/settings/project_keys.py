"""The keys of a project's settings files: which count before the user accepted the file, and what the others can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from holdfast.app.settings.sizes import size_bytes
from holdfast.facts.mission import MissionPolicy
from holdfast.facts.session import Breakers, ContextPolicy, Environment, HandsPolicy, Limits

TABLES = {
    "breakers": Breakers(),
    "context": ContextPolicy(),
    "environment": Environment(),
    "hands": HandsPolicy(),
}
"""The tables that a project may have, and what holds where nobody set a key of theirs."""

BY_ROLE = ("models", "turns")
"""Tables of mission.toml by role."""

SET_UP = ("auto", "setup", "packages", "services", "recipes", "submodules", "lfs")
"""The keys of `[environment]` that make something run or be fetched."""

ALWAYS = ("hands.require_hard", "goal", "name", "protected", "hidden")
"""Keys that count without trust whatever they say: they only ask for more isolation or protection, or name the work."""


def _amount(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(str(error)) from error


LOWERED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("max_turns", "context_tokens", "max_output_tokens"), int),
    **dict.fromkeys(("budget_usd", "task_budget_usd", "breakers.spend_per_hour_usd"), _amount),
    **dict.fromkeys((f"breakers.{name}" for name in ("tool_failures", "idle_turns", "provider_failures")), int),
    **dict.fromkeys(("hands.memory_bytes", "hands.disk_bytes"), size_bytes),
    **dict.fromkeys(("hands.processes", "hands.cpus"), float),
    **dict.fromkeys(("workers", "max_iterations", "max_attempts", "max_replans", "task_tokens"), int),
}
"""Caps that count without trust where they are not above what holds anyway, and how each is read."""

DANGERS = {
    "model": "your API key and all that the agent reads go to this model and its address",
    "models": "your API key and all that these roles read go to these models and their addresses",
    "prompts": "the files of this folder are the orders that begin each model request",
    "environment": "runs in the sandbox before the work, and may send what it reads to package registries",
    "hooks": "commands of the repository run in the sandbox around each tool call of a worker",
    "checks": "commands that run in the sandbox when a worker hands in its work",
    "edit_checks": "commands that run in the sandbox after each edit of a worker",
    "context": "changes what the model is shown, what that costs, and whether loops are noticed",
    "breakers": "the session goes on longer before it stops and asks",
    "unprotected": "workers may change files that are protected otherwise",
    "judge": "changes who judges the work",
    "follow": "takes in commits of this branch while the mission works",
    "contract": "says what is to be done, and the commands that check it",
}
"""What a key, or a table, can do that needs trust. Every other one raises a cap or changes how the work is done."""

_RAISED = "raises a cap"
_OTHER = "changes how the work is done"


class Change(NamedTuple):
    """A key of a project's settings file: its effective value without the file and with it; why it needs trust."""

    key: str
    old: Any
    new: Any
    danger: str


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys with their values, those of a table as `table.key`."""
    for name, value in values.items():
        if isinstance(value, dict) and (name in TABLES or name in BY_ROLE):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        else:
            yield name, value


def keep(values: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """The same settings with these flat keys alone."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and (name in TABLES or name in BY_ROLE):
            inner = {key: each for key, each in value.items() if f"{name}.{key}" in keys}
            found |= {name: inner} if inner else {}
        elif name in keys:
            found[name] = value
    return found


def changes(values: Mapping[str, Any], before: Mapping[str, Any], given: frozenset[str] = frozenset()) -> list[Change]:
    """What each key of a project's settings would change. `danger` is empty for one that counts without trust.

    `before` are the settings without the file, `given` the flat keys that the user set and the file cannot change.
    """
    found = []
    for key, new in flat(values):
        old = _before(key, before)
        if key in given:
            found.append(Change(key, old, old, ""))
        else:
            found.append(Change(key, old, new, _danger(key, new, old)))
    return found


def _before(key: str, before: Mapping[str, Any]) -> Any:
    table, _, name = key.rpartition(".")
    if not table:
        return before.get(key, getattr(MissionPolicy(), key, None))
    default = getattr(TABLES[table], name, None) if table in TABLES else None
    default = before.get("max_turns", Limits().max_turns) if table == "turns" else default
    return before.get(table, {}).get(name, default)


def _danger(key: str, new: Any, old: Any) -> str:
    table = key.partition(".")[0]
    if new == old or key in ALWAYS or (key == "hooks" and new is False) or _is_lowered(key, new, old):
        return ""
    return DANGERS.get(table) or (_RAISED if key in LOWERED or table == "turns" else _OTHER)


def _is_lowered(key: str, new: Any, old: Any) -> bool:
    read = LOWERED.get("max_turns" if key.startswith("turns.") else key)
    if read is None or isinstance(new, bool):
        return False
    try:
        lowest = read(new)
        return bool(old in (None, "", "none") or lowest <= read(old))
    except (ValueError, TypeError, ArithmeticError):
        return False
