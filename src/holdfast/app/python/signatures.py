"""The JSON schema of a tool's function, and the conversion of a model's input to its arguments."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from holdfast.app.python.types import Result
from holdfast.errors import UsageError
from holdfast.session.tools import SpawnInput
from holdfast.session.tools.output import unchecked

Child = Callable[[str, dict[str, Any]], Awaitable[Result]]

KEY = "idempotency_key"
"""The parameter of a keyed tool that the model does not see."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The session and the call that a tool function runs for.

    A function gets it in each parameter of this type; the model does not see such a parameter. When a call is tried
    again after a crash, `call_id` and `idempotency_key` are the same as before. `session_key` is the key of the
    session, empty without one. `workspace` is the folder that the session works in. `attempt` is the number of this
    try, from 1, and `seq` the position of the event that started it; in a probe, those of the try in question.
    """

    session_id: str
    session_key: str
    call_id: str
    idempotency_key: str
    workspace: Path
    attempt: int
    seq: int
    _child: Child = dataclasses.field(repr=False, compare=False)

    async def child(
        self,
        goal: str,
        *,
        key: str,
        name: str = "",
        tools: Sequence[str] | None = None,
        criteria: Sequence[str] = (),
        budget_usd: float | None = None,
        max_turns: int | None = None,
        same_workspace: bool = False,
    ) -> Result:
        """Open a child of the session, wait until it is done, has failed, or is at a cap, and return its result.

        It is the child that the tool `spawn` opens: of the same agent and model, below the caps of the session. `key`
        names it within the call: a call that is repeated after a crash finds the child that it opened before. `tools`
        are some of the session's (default: all). It works in a folder of its own, or with `same_workspace` in that of
        the session. The time limit of the tool goes on meanwhile, so raise `timeout_s`; a child that is not done by
        then continues, and the model reads its report. Raises `UsageError` when no child may be opened.
        """
        given = {"goal": goal, "name": name, "criteria": list(criteria), "budget_usd": budget_usd}
        given |= {"max_turns": max_turns, "tools": list(tools) if tools is not None else None}
        given["workspace"] = "same" if same_workspace else "fresh"
        if not key:
            raise UsageError("a child needs a key, by which a repeated call finds it; an example is key='review'")
        try:
            msgspec.convert(given, SpawnInput)
        except msgspec.ValidationError as error:
            raise UsageError(f"no child was opened: {error}") from error
        return await self._child(key, given)


ALLOWED = (
    "str, int, float, bool, None, list, dict with str keys, Literal, Enum, a msgspec Struct, a dataclass, a TypedDict, "
    "and unions of these with None"
)

_PLAIN = (str, int, float, bool, types.NoneType)
_SECTION = re.compile(
    r"^(args|arguments|parameters|params|returns?|raises?|yields?|examples?|notes?):\s*$", re.IGNORECASE
)
_ARGS = ("args", "arguments", "parameters", "params")
_REST = re.compile(r"^:(?:param|parameter|arg)\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_ENTRY = re.compile(r"^`{0,2}(\w+)`{0,2}(?:\s*\([^)]*\))?\s*:\s+(.*)$")
_REF = "#/$defs/"


class Signature:
    """The parameters of a tool's function, for the model and for Python.

    Raises `UsageError` for a function that cannot be a tool.
    """

    def __init__(self, function: Callable[..., Any], name: str, *, keyed: bool) -> None:
        self.name = name
        self.parameters = _parameters(function, name, keyed=keyed)
        self.description, notes = _documented(function, name, set(self.parameters))
        hints = _hints(function, name)
        self.contexts = [each for each in self.parameters if hints.get(each) is ToolContext]
        for each in self.contexts:
            del self.parameters[each]
        fields: list[tuple[str, Any, Any]] = []
        for parameter in self.parameters.values():
            kind = hints.get(parameter.name)
            if parameter.name not in hints:
                raise _cannot(
                    name, f"its parameter {parameter.name!r} has no type; write one, such as `{parameter.name}: str`"
                )
            _check_type(kind, name, parameter.name, ())
            needed = parameter.default is parameter.empty
            fields.append((parameter.name, kind, msgspec.field() if needed else msgspec.field(default=None)))
        try:
            self._input = msgspec.defstruct("Input", fields, forbid_unknown_fields=True, kw_only=True)
            self.schema = _schema(self._input, notes)
        except TypeError as error:
            raise _cannot(name, f"its parameters cannot be described to a model: {error}") from error
        self._defaults(hints)

    def _defaults(self, hints: dict[str, Any]) -> None:
        """Add the defaults to the schema. Raises `UsageError` for one that is not of its parameter's type."""
        for parameter in self.parameters.values():
            if parameter.default is parameter.empty:
                continue
            try:
                plain = msgspec.to_builtins(parameter.default)
                msgspec.convert(plain, hints[parameter.name])
            except (TypeError, msgspec.MsgspecError) as error:
                raise _cannot(
                    self.name,
                    f"the default of {parameter.name!r}, {parameter.default!r}, is not of its type ({error}); "
                    "change one of them, for example to `X | None = None`",
                ) from error
            self.schema["properties"][parameter.name]["default"] = plain

    def arguments(self, value: dict[str, Any]) -> dict[str, Any]:
        """Convert a model's input to arguments. Parameters that it leaves out stay out.

        Raises `msgspec.ValidationError` with a message for the model.
        """
        converted = msgspec.convert(value, self._input)
        return {name: getattr(converted, name) for name in self.parameters if name in value}


def output_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of an output type. Raises `UsageError` for one that no schema can describe."""
    try:
        _check_inner(kind, "output_type", "output", ())
        schema: dict[str, Any] = _schema(msgspec.defstruct("Input", [("output", kind)]), {})["properties"]["output"]
    except (TypeError, UsageError) as error:
        raise UsageError(
            f"output_type={_named(kind)} cannot be described to a model; an output is {ALLOWED}"
        ) from error
    if word := unchecked(schema):
        raise UsageError(
            f"output_type={_named(kind)} has the constraint {word}, which a process without this program cannot check; "
            "leave it out, and check it on the result"
        )
    return schema


def _cannot(name: str, why: str) -> UsageError:
    return UsageError(f"the function {name!r} cannot be a tool: {why}")


def _parameters(function: Callable[..., Any], name: str, *, keyed: bool) -> dict[str, inspect.Parameter]:
    """Return the parameters that the model provides."""
    found = dict(inspect.signature(function).parameters)
    for parameter in found.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise _cannot(
                name, f"its parameter `{parameter}` has no fixed name; give each parameter a name and a type of its own"
            )
    if keyed and KEY not in found:
        raise _cannot(
            name,
            f"it is keyed and has no parameter `{KEY}: str`; add it and pass it on, so that a repeat is recognized",
        )
    if not keyed and KEY in found:
        raise _cannot(name, f"it has a parameter `{KEY}`; pass `keyed=True` to have Holdfast fill it in, or rename it")
    found.pop(KEY, None)
    return found


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise _cannot(
            name, f"one of its types is unknown ({error}); define or import that type at the top of the module"
        ) from error


def _check_type(kind: Any, name: str, where: str, inside: tuple[Any, ...]) -> None:
    """Raise `UsageError` for a type that no schema can describe. `inside` are the enclosing classes."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN or origin is Literal:
        return
    if kind in inside:
        raise _cannot(name, f"the type of {where!r}, {_named(kind)}, contains itself; use one that does not")
    if origin is Annotated:
        return _check_type(args[0], name, where, inside)
    if origin in (Union, types.UnionType):
        for each in args:
            _check_type(each, name, where, inside)
    elif kind is list or kind is dict:
        return
    elif origin is list:
        _check_inner(args[0], name, where, inside)
    elif origin is dict and args[0] is str:
        _check_inner(args[1], name, where, inside)
    elif isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    ):
        for field, each in _fields_of(kind, name).items():
            _check_inner(each, name, f"{where}.{field}", (*inside, kind))
    elif not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        raise _cannot(name, f"{where!r} is of the type {_named(kind)}; a tool takes {ALLOWED}")


def _check_inner(kind: Any, name: str, where: str, inside: tuple[Any, ...]) -> None:
    """Check the type of a container's items, which may also be `Any`."""
    if kind is not Any:
        _check_type(kind, name, where, inside)


def _fields_of(kind: type, name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise _cannot(name, f"a type inside {kind.__name__} is unknown ({error}); define it at the top") from error


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _schema(kind: type[msgspec.Struct], notes: dict[str, str]) -> dict[str, Any]:
    """Return the JSON schema of an input, without references, with the docstring's notes on each parameter."""
    (top,), components = msgspec.json.schema_components([kind], ref_template=_REF + "{name}")
    whole: dict[str, Any] = _inlined(top, components)
    whole.pop("title", None)
    whole.setdefault("properties", {})
    for parameter, schema in whole["properties"].items():
        schema.pop("default", None)
        if parameter in notes:
            schema["description"] = notes[parameter]
    return whole


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    merged = {key: _inlined(value, components) for key, value in schema.items() if key != "$ref"}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_REF):
        merged = {**_inlined(components[reference.removeprefix(_REF)], components), **merged}
    return merged


def _documented(function: Callable[..., Any], name: str, parameters: set[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description and notes on parameters, from `Args:` or lines of their own."""
    text = inspect.getdoc(function) or ""
    said: list[str] = []
    notes: dict[str, str] = {}
    section, latest, depth = "", "", 0
    for line in text.splitlines():
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        if heading := _SECTION.match(bare):
            section, latest = heading[1].lower(), ""
            continue
        if bare and section and indent == 0 and section not in _ARGS:
            section = ""
        entry = _REST.match(bare) or _ENTRY.match(bare)
        if entry and entry[1] in parameters and section in ("", *_ARGS):
            latest, depth = entry[1], indent
            notes[latest] = entry[2].strip()
        elif latest and bare and indent > depth:
            notes[latest] = f"{notes[latest]} {bare}".strip()
        elif section == "" or (section in _ARGS and indent == 0 and bare):
            section, latest = "", ""
            said.append(line)
    description = "\n".join(said).strip()
    if not description:
        raise _cannot(name, "it has no docstring; the model needs a sentence on what it does and when to use it")
    return description, notes
