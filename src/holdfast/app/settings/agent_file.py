"""Agent files: `--agent FILE`, and `Agent.from_file`."""

from __future__ import annotations

from pathlib import Path

from holdfast.app.settings.config import known_key, nearest, read_text, read_toml
from holdfast.errors import UsageError
from holdfast.facts.session import Agent
from holdfast.session.tools import DEFAULT_TOOLS, TOOLS

THINKING = ("off", "low", "medium", "high")
"""How much a model may reason before it answers."""


def load_agent(path: str, model: str) -> Agent:
    """The agent of an `--agent` file. `model` overrides.

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
        if tool not in TOOLS:
            raise UsageError(f"{file} has the tool {tool!r}, which does not exist; {nearest(str(tool), TOOLS)}")
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
