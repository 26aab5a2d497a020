"""Agent files (--agent FILE) and permission rules (--rules FILE and flags)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from holdfast.app.settings.config import read_text, read_toml
from holdfast.app.settings.values import count, duration_s, known_key, nearest
from holdfast.errors import UsageError
from holdfast.facts.session import Agent, Rule
from holdfast.session.tools import DEFAULT_TOOLS, TOOLS

THINKING = ("off", "low", "medium", "high")
"""Levels of reasoning before a model answers."""


def load_agent(path: str, model: str) -> Agent:
    """Load the agent of an `--agent` file. `model` overrides the file's.

    Its keys are name, model, fallbacks, thinking, system or system_file, and tools.
    """
    if not path:
        return Agent(model=model, tools=DEFAULT_TOOLS)
    file = Path(path)
    data = read_toml(file, "the agent file")
    texts = dict.fromkeys(("name", "model", "system", "system_file", "thinking"), str)
    known: dict[str, type] = {**texts, "tools": list, "fallbacks": list}
    for name, value in data.items():
        known_key(name, known, str(file))
        if not isinstance(value, known[name]):
            raise UsageError(f"{name} in {file} has to be a {'list' if known[name] is list else 'text'}")
    tools = tuple(data.get("tools", DEFAULT_TOOLS))
    for tool in tools:
        if not isinstance(tool, str) or tool not in TOOLS:
            raise UsageError(
                f"tools in {file} names the tool {tool!r}, which does not exist; {nearest(str(tool), TOOLS)}"
            )
    system = data.get("system", "")
    if "system_file" in data:
        system = read_text(file.parent, str(data["system_file"]), f"the system prompt of {file},")
    thinking = data.get("thinking", "")
    if thinking not in ("", *THINKING):
        raise UsageError(f"thinking in {file} is {thinking!r}; it is one of {', '.join(THINKING)}, or left out")
    fallbacks = data.get("fallbacks", [])
    if not all(isinstance(each, str) and each for each in fallbacks):
        raise UsageError(f'fallbacks in {file} are names of models, such as fallbacks = ["anthropic:NAME"]')
    return Agent(
        model=model or data.get("model", ""),
        name=data.get("name", file.stem),
        system=system,
        tools=tools,
        fallbacks=tuple(fallbacks),
        thinking=thinking,
    )


DECISIONS = ("allow", "ask", "deny")

EXAMPLE = 'for example: [[rule]] tool = "bash" match = "git push*" decision = "ask"'


def load_rules(
    path: str, flags: Sequence[tuple[Literal["allow", "ask", "deny"], str]], names: Collection[str] = tuple(TOOLS)
) -> tuple[Rule, ...]:
    """Permission rules of a `--rules` file, then those of the flags in their order; the last match wins.

    `names` are the existing tools.
    """
    data = read_toml(Path(path), "the rules file") if path else {}
    for name in data:
        known_key(name, ("rule",), path)
    rules = rules_of_entries(data.get("rule", []), path, names)
    return tuple(rules + [Rule(_pattern(tool, f"--{decision}", names), decision) for decision, tool in flags])


def rules_of_entries(entries: Any, path: str, names: Collection[str] = tuple(TOOLS)) -> list[Rule]:
    """Permission rules of the `[[rule]]` tables of a file. Raises `UsageError`."""
    return [_rule(entry, path, names) for entry in (entries if isinstance(entries, list) else [entries])]


def _pattern(pattern: str, where: str, names: Collection[str]) -> str:
    """Check a glob over tool names. A glob that matches no tool is an error, since it would silently do nothing."""
    if not any(fnmatchcase(tool, pattern) for tool in names):
        raise UsageError(f"{where} {pattern!r} fits no tool; {nearest(pattern, names)}")
    return pattern


def _rule(entry: Any, path: str, names: Collection[str]) -> Rule:
    if not isinstance(entry, dict) or not isinstance(entry.get("tool"), str):
        raise UsageError(f"a rule in {path} has no tool; {EXAMPLE}")
    for name in entry:
        known_key(name, ("tool", "match", "decision", "for_s", "uses", "bound_to"), path)
    where = f"the rule for {entry['tool']!r} in {path}"
    if entry.get("decision") not in DECISIONS:
        raise UsageError(f"the decision for {entry['tool']!r} in {path} has to be allow, ask or deny; {EXAMPLE}")
    match = entry.get("match", "")
    if not isinstance(match, str):
        raise UsageError(f"{where} has a match that is no text; it is a glob over the main argument, and {EXAMPLE}")
    pattern = _pattern(entry["tool"], f"the rule in {path} for", names)
    for_s, uses = (_bound(entry, name, read, where) for name, read in (("for_s", duration_s), ("uses", count)))
    bound_to = entry.get("bound_to", [])
    if not isinstance(bound_to, list) or not all(isinstance(each, str) for each in bound_to):
        raise UsageError(f'{where} has a bound_to that is no list of globs; for example: bound_to = ["deploy/*"]')
    return Rule(pattern, entry["decision"], match, for_s, uses, tuple(bound_to))


def _bound(entry: dict[str, Any], name: str, read: Callable[[Any], Any], where: str) -> Any:
    if entry.get(name) is None:
        return None
    try:
        return read(entry[name])
    except ValueError as error:
        raise UsageError(f"{where}, {name}: {error}") from error
