"""`holdfast.Agent`: who works, as a Python program says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase
from os import PathLike, fspath
from typing import Any, Literal, get_args

from holdfast.app.models import settled_model
from holdfast.app.python.tools import Runner, Tool, tool
from holdfast.app.settings.agent_file import load_agent
from holdfast.app.settings.config import nearest
from holdfast.app.settings.rules import load_rules
from holdfast.errors import UsageError
from holdfast.facts import session as facts
from holdfast.facts.session import CustomTool, Rule
from holdfast.session.tools import DEFAULT_TOOLS, TOOLS

Thinking = Literal["", "off", "low", "medium", "high"]

DECISIONS = ("allow", "ask", "deny")
"""In the order in which they are appended: the last rule that fits counts, so the strictest wins."""


@dataclass(frozen=True)
class Agent:
    """Who works: a model, what it is told, the tools it is offered, what it may do with them.

    `model` is `provider:name`, as with `--model`; empty for the model of holdfast.toml or `HOLDFAST_MODEL`. A server
    of your own stands behind an `@`: `openai-compatible:NAME@http://127.0.0.1:8000/v1`. `system` is added to the
    prompt that Holdfast brings. `tools` are names of tools that it brings too (`bash`, `read`, …) and functions of
    yours: made with `@holdfast.tool`, or plain ones, which are made into tools without options.

    `rules` are permission rules, or a file of them; `allow`, `ask` and `deny` are globs over tool names that are added
    to them in this order. The last rule that fits a call counts, and what no rule fits is allowed. `fallbacks` are
    models to ask when the first cannot answer. `thinking` is how much the model may reason before it answers, empty for
    its provider's default. `name` is what lists call it.

    Raises `UsageError` for a tool, a rule or a value that does not exist.
    """

    model: str = ""
    _: KW_ONLY
    system: str = ""
    tools: Sequence[str | Callable[..., Any]] = DEFAULT_TOOLS
    rules: Sequence[Rule] | str | PathLike[str] = ()
    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    fallbacks: Sequence[str] = ()
    thinking: Thinking = ""
    name: str = "agent"

    def __post_init__(self) -> None:
        for field in ("model", "system", "name"):
            if not isinstance(getattr(self, field), str):
                raise UsageError(f"{field} of an agent is {getattr(self, field)!r}; it has to be text")
        for field in ("tools", "allow", "ask", "deny", "fallbacks"):
            object.__setattr__(self, field, _sequence(field, getattr(self, field)))
        if self.thinking not in get_args(Thinking):
            raise UsageError(f"thinking={self.thinking!r} is not one of off, low, medium, high; leave it out for none")
        object.__setattr__(self, "tools", tuple(_tool(each) for each in self.tools))
        names = tool_names(self)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"the agent {self.name!r} has the tool {twice[0]!r} twice; name each tool once")
        object.__setattr__(self, "rules", _rules(self, names))

    @classmethod
    def from_file(
        cls, path: str | PathLike[str], *, model: str = "", tools: Sequence[Callable[..., Any]] = ()
    ) -> Agent:
        """The agent of an `--agent` file (TOML: name, model, fallbacks, thinking, system or system_file, tools).

        `model` stands in for the file's; `tools` are functions of yours, beside the tools that the file names. Raises
        `UsageError` for a file that cannot be read, or says what there is not.
        """
        found = load_agent(fspath(path) or ".", model)
        return cls(
            found.model,
            system=found.system,
            name=found.name,
            tools=(*found.tools, *tools),
            fallbacks=found.fallbacks,
            thinking=found.thinking,
        )


def _sequence(field: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f'{field} of an agent is {value!r}; it has to be a list, such as {field}=["bash"]')
    if field != "tools" and (wrong := [each for each in value if not isinstance(each, str)]):
        raise UsageError(f"{field} of an agent holds {wrong[0]!r}, which is no text")
    return tuple(value)


def _tool(given: Any) -> str | Tool[..., Any]:
    if isinstance(given, str):
        if given not in TOOLS:
            raise UsageError(f"there is no tool {given!r}; {nearest(given, TOOLS)}, or pass a function")
        return given
    return given if isinstance(given, Tool) else tool(given)


def _rules(agent: Agent, names: Sequence[str]) -> tuple[Rule, ...]:
    given = agent.rules
    rules: list[Any] = []
    if isinstance(given, str | PathLike):
        rules += load_rules(fspath(given), (), names=(*TOOLS, *names)) if fspath(given) else ()
    else:
        rules += given
        if wrong := [rule for rule in rules if not isinstance(rule, Rule) or rule.decision not in DECISIONS]:
            raise UsageError(f'rules of an agent holds {wrong[0]!r}; an example is holdfast.Rule("bash", "ask")')
    for decision, patterns in (("allow", agent.allow), ("ask", agent.ask), ("deny", agent.deny)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError(
                    f"{decision}={pattern!r} fits no tool of the agent {agent.name!r}, so it would do nothing; "
                    f"{nearest(pattern, names) if names else 'it has no tools'}"
                )
            rules.append(Rule(pattern, decision))  # type: ignore[arg-type]  # one of DECISIONS
    return tuple(rules)


def functions_of(agent: Agent) -> list[Tool[..., Any]]:
    """The functions among an agent's tools."""
    return [each for each in agent.tools if isinstance(each, Tool)]


def tool_names(agent: Agent) -> list[str]:
    """The names of all its tools, in their order."""
    return [each if isinstance(each, str) else each.spec.name for each in agent.tools if isinstance(each, str | Tool)]


def declared(agent: Agent, default_model: str) -> facts.Agent:
    """The agent as the log has it. Raises `UsageError` without a model."""
    model = agent.model or default_model
    if not model:
        raise UsageError(
            f'the agent {agent.name!r} has no model; name one, such as holdfast.Agent("anthropic:NAME"), or set '
            "HOLDFAST_MODEL; `holdfast doctor` proposes one for the keys that are here"
        )
    return facts.Agent(
        model=settled_model(model),
        name=agent.name,
        system=agent.system,
        tools=tuple(each for each in agent.tools if isinstance(each, str)),
        rules=() if isinstance(agent.rules, str | PathLike) else tuple(agent.rules),
        custom=tuple(each.spec for each in functions_of(agent)),
        fallbacks=tuple(settled_model(each) for each in agent.fallbacks),
        thinking=agent.thinking,
    )


def runners(tools: Sequence[Callable[..., Any]]) -> dict[str, Runner]:
    """Functions by the names of their tools. Raises `UsageError` for two of one name."""
    found: dict[str, Runner] = {}
    for each in tools:
        made = _tool(each)
        if isinstance(made, str):
            raise UsageError(f"{made!r} is no function; the tools that Holdfast brings need not be passed here")
        if made.spec.name in found:
            raise UsageError(f"there are two functions for the tool {made.spec.name!r}; pass each tool once")
        found[made.spec.name] = made.runner
    return found


# --- a function today and the tool that a session was told of -------------------------------------


def check_functions(name: str, logged: Sequence[CustomTool], given: Mapping[str, Runner]) -> None:
    """Raise `UsageError` unless every function that a session may call is here, in a form that fits what it was told.

    The session's own declaration goes on to count: its description, price and time are not changed by the program.
    """
    for spec in logged:
        runner = given.get(spec.name)
        if runner is None:
            raise UsageError(
                f"session {name} uses the tool {spec.name!r}, a function that this program did not pass; nothing was "
                f"run: pass it, for example tools=[{spec.name}]"
            )
        what = _unlike(spec, runner.spec)
        if what:
            raise UsageError(
                f"session {name} was told of the tool {spec.name!r} in another form: {what}; nothing was run. Pass a "
                "function that takes what the session was told of, or start a new session"
            )


def _unlike(old: CustomTool, new: CustomTool) -> str:
    """Why a function does not fit a declaration; empty when it does."""
    if (old.on_unknown, old.read_only) != (new.on_unknown, new.read_only):
        was, now = (f"on_unknown={each.on_unknown!r}, read_only={each.read_only}" for each in (old, new))
        return f"it was {was} and is {now} now"
    before, after = _shape(old.input_schema), _shape(new.input_schema)
    had, has = before.get("properties", {}), after.get("properties", {})
    for name in had:
        if name not in has:
            return f"it takes no {name!r} any more"
        if had[name] != has[name]:
            return f"{name!r} is of another type"
    if before.get("$defs", {}) != after.get("$defs", {}):
        return "the types of its parameters differ"
    needs = [name for name in after.get("required", ()) if name not in before.get("required", ())]
    return f"it needs {needs[0]!r} now" if needs else ""


def _shape(schema: Any) -> Any:
    """A schema without what is only said: two of one shape take the same values."""
    if isinstance(schema, list):
        return [_shape(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")
    return {
        key: {name: _shape(each) for name, each in value.items()} if key in named else _shape(value)
        for key, value in schema.items()
        if key not in ("description", "title", "default")
    }
