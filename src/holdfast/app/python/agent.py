"""`holdfast.Agent`: the agent of a session, as a Python program declares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase
from os import PathLike, fspath
from typing import Any, Generic, Literal, get_args

from holdfast.app.models import check_model_name, settled_model
from holdfast.app.python.signatures import output_schema
from holdfast.app.python.tools import Runner, Tool, tool
from holdfast.app.python.types import T
from holdfast.app.settings.agent_file import load_agent, load_rules
from holdfast.app.settings.values import nearest
from holdfast.errors import UsageError
from holdfast.facts import session as facts
from holdfast.facts.session import CustomTool, Rule
from holdfast.session.tools import DEFAULT_TOOLS, TOOLS
from holdfast.session.tools.output import output_tool

Thinking = Literal["", "off", "low", "medium", "high"]

DECISIONS = ("allow", "ask", "deny")
"""Ordered as the rules are appended: the last match applies, so the strictest wins."""


@dataclass(frozen=True)
class Agent(Generic[T]):
    """An agent: a model, its instructions, its tools, and the rules for using them.

    `model` is `provider:name`, as with `--model`; empty for the model of holdfast.toml or `HOLDFAST_MODEL`. The address
    of your own server follows an `@`: `openai-compatible:NAME@http://127.0.0.1:8000/v1`. `system` is appended to
    Holdfast's own system prompt. `tools` are names of built-in tools (`bash`, `read`, …) and your functions: decorated
    with `@holdfast.tool`, or plain ones, which become tools without options.

    `rules` are permission rules, or a file of them; `allow`, `ask` and `deny` are globs over tool names that are
    appended in this order. The last rule that matches a call applies; a call that no rule matches is allowed.
    `fallbacks` are models to use when the first cannot answer. `thinking` is how much the model may reason before it
    answers, empty for its provider's default. `name` appears in lists.

    `output_type` is the type of the output that the agent must submit: a msgspec Struct, a dataclass, a TypedDict, or a
    plain type such as `list[str]`. A session is done only after a valid output was submitted, which is then
    `Result.output`. The model is told why an output is not valid; after five such messages in a row, a user is asked.

    Raises `UsageError` for an unknown model, tool, rule, or value.
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
    output_type: type[T] | None = None

    def __post_init__(self) -> None:
        for field in ("model", "system", "name"):
            if not isinstance(getattr(self, field), str):
                raise UsageError(f"{field} of an agent is {getattr(self, field)!r}; it must be text")
        for field in ("tools", "allow", "ask", "deny", "fallbacks"):
            object.__setattr__(self, field, _sequence(field, getattr(self, field)))
        for model in (*((self.model,) if self.model else ()), *self.fallbacks):
            check_model_name(model)
        if self.thinking not in get_args(Thinking):
            raise UsageError(
                f"thinking={self.thinking!r} is not one of off, low, medium, high; leave it out for the default"
            )
        if self.output_type is not None:
            output_schema(self.output_type)
        object.__setattr__(self, "tools", tuple(_tool(each) for each in self.tools))
        names = tool_names(self)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"the agent {self.name!r} has the tool {twice[0]!r} twice; list each tool once")
        object.__setattr__(self, "rules", _rules(self, names))

    @classmethod
    def from_file(
        cls, path: str | PathLike[str], *, model: str = "", tools: Sequence[Callable[..., Any]] = ()
    ) -> Agent[Any]:
        """Load the agent of an `--agent` file (TOML: name, model, fallbacks, thinking, system or system_file, tools).

        `model` replaces the file's; `tools` are your functions, added to the tools of the file. Raises `UsageError` for
        a file that cannot be read or is invalid.
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
        raise UsageError(f'{field} of an agent is {value!r}; it must be a list, such as {field}=["bash"]')
    if field != "tools" and (wrong := [each for each in value if not isinstance(each, str)]):
        raise UsageError(f"{field} of an agent contains {wrong[0]!r}, which is not text")
    return tuple(value)


def _tool(given: Any) -> str | Tool[..., Any]:
    if isinstance(given, str):
        if given not in TOOLS:
            raise UsageError(f"there is no tool {given!r}; {nearest(given, TOOLS)}, or pass a function")
        return given
    return given if isinstance(given, Tool) else tool(given)


def _rules(agent: Agent[Any], names: Sequence[str]) -> tuple[Rule, ...]:
    given = agent.rules
    rules: list[Any] = []
    if isinstance(given, str | PathLike):
        rules += load_rules(fspath(given), (), names=(*TOOLS, *names)) if fspath(given) else ()
    else:
        rules += given
        if wrong := [rule for rule in rules if not isinstance(rule, Rule) or rule.decision not in DECISIONS]:
            raise UsageError(f'rules of an agent contains {wrong[0]!r}; an example is holdfast.Rule("bash", "ask")')
    for decision, patterns in (("allow", agent.allow), ("ask", agent.ask), ("deny", agent.deny)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError(
                    f"{decision}={pattern!r} matches no tool of the agent {agent.name!r}; "
                    f"{nearest(pattern, names) if names else 'it has no tools'}"
                )
            rules.append(Rule(pattern, decision))  # type: ignore[arg-type]  # one of DECISIONS
    return tuple(rules)


def functions_of(agent: Agent[Any]) -> list[Tool[..., Any]]:
    """Return the functions among an agent's tools."""
    return [each for each in agent.tools if isinstance(each, Tool)]


def tool_names(agent: Agent[Any]) -> list[str]:
    """Return the names of all the agent's tools, in order."""
    return [each if isinstance(each, str) else each.spec.name for each in agent.tools if isinstance(each, str | Tool)]


def declared(agent: Agent[Any], default_model: str) -> facts.Agent:
    """Return the agent as recorded in the log. Raises `UsageError` without a model."""
    model = agent.model or default_model
    if not model:
        raise UsageError(
            f'the agent {agent.name!r} has no model; name one, such as holdfast.Agent("anthropic:NAME"), or set '
            "HOLDFAST_MODEL; `holdfast doctor` suggests one for the available keys"
        )
    output = () if agent.output_type is None else (output_tool(output_schema(agent.output_type)),)
    return facts.Agent(
        model=settled_model(model),
        name=agent.name,
        system=agent.system,
        tools=tuple(each for each in agent.tools if isinstance(each, str)),
        rules=() if isinstance(agent.rules, str | PathLike) else tuple(agent.rules),
        custom=(*(each.spec for each in functions_of(agent)), *output),
        fallbacks=tuple(settled_model(each) for each in agent.fallbacks),
        thinking=agent.thinking,
    )


def runners(tools: Sequence[Callable[..., Any]]) -> dict[str, Runner]:
    """Return functions by the names of their tools. Raises `UsageError` for a duplicate name."""
    found: dict[str, Runner] = {}
    for each in tools:
        made = _tool(each)
        if isinstance(made, str):
            raise UsageError(f"{made!r} is not a function; built-in tools need not be passed here")
        if made.spec.name in found:
            raise UsageError(f"there are two functions for the tool {made.spec.name!r}; pass each tool once")
        found[made.spec.name] = made.runner
    return found


# --- a program's function compared with the tool that the session declared ------------------------------


def check_functions(name: str, logged: Sequence[CustomTool], given: Mapping[str, Runner]) -> None:
    """Raise `UsageError` unless the program passed every function of a session, in a form that fits its declaration.

    The session's own declaration stays in force: the program does not change its description, price, or time limit.
    """
    for spec in logged:
        runner = given.get(spec.name)
        if runner is None:
            raise UsageError(
                f"session {name} uses the function {spec.name!r}, which this program did not pass; nothing was "
                f"run: pass it, for example tools=[{spec.name}]"
            )
        what = _unlike(spec, runner.spec)
        if what:
            raise UsageError(
                f"session {name} declared the tool {spec.name!r} in another form: {what}; nothing was run. Pass a "
                "function that fits that declaration, or start a new session"
            )


def _unlike(old: CustomTool, new: CustomTool) -> str:
    """Return why a function does not fit a declaration; empty when it does."""
    if (old.on_unknown, old.read_only) != (new.on_unknown, new.read_only):
        was, now = (f"on_unknown={each.on_unknown!r}, read_only={each.read_only}" for each in (old, new))
        return f"it was {was} and is {now} now"
    before, after = _shape(old.input_schema), _shape(new.input_schema)
    had, has = before.get("properties", {}), after.get("properties", {})
    for name in had:
        if name not in has:
            return f"it no longer takes {name!r}"
        if had[name] != has[name]:
            return f"{name!r} has another type"
    if before.get("$defs", {}) != after.get("$defs", {}):
        return "the types of its parameters differ"
    needs = [name for name in after.get("required", ()) if name not in before.get("required", ())]
    return f"it now requires {needs[0]!r}" if needs else ""


def _shape(schema: Any) -> Any:
    """Return a schema without descriptions: two of the same shape accept the same values."""
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
