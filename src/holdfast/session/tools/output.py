"""Typed output of a session: the tool that submits it, and the check of a value against its JSON schema. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.facts.session import Agent, CustomTool

SUBMIT_OUTPUT = "submit_output"
"""Tool with which an agent submits its output. The harness answers it, so any process can continue the session."""

OUTPUT = "output"
"""The only parameter of that tool."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}

_NUMBER = (int, float)

_LIMITS: dict[str, tuple[type | tuple[type, ...], str, Any]] = {
    "minimum": (_NUMBER, "at least", lambda value, limit: value >= limit),
    "maximum": (_NUMBER, "at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": (_NUMBER, "above", lambda value, limit: value > limit),
    "exclusiveMaximum": (_NUMBER, "below", lambda value, limit: value < limit),
    "minLength": (str, "of a length of at least", lambda value, limit: len(value) >= limit),
    "maxLength": (str, "of a length of at most", lambda value, limit: len(value) <= limit),
    "minItems": (list, "of a length of at least", lambda value, limit: len(value) >= limit),
    "maxItems": (list, "of a length of at most", lambda value, limit: len(value) <= limit),
    "pattern": (str, "text that matches", lambda value, limit: re.search(limit, value) is not None),
}


def output_tool(schema: Mapping[str, Any]) -> CustomTool:
    """Return the declaration of the tool that submits a value of that JSON schema."""
    return CustomTool(
        name=SUBMIT_OUTPUT,
        description="Submit your output. The work is done only after a valid output is submitted; the last one counts.",
        input_schema={
            "type": "object",
            "properties": {OUTPUT: dict(schema)},
            "required": [OUTPUT],
            "additionalProperties": False,
        },
        on_unknown="retry",
        read_only=True,
    )


def has_output(agent: Agent) -> bool:
    """Return True for an agent that has to submit an output."""
    return any(each.name == SUBMIT_OUTPUT for each in agent.custom)


def functions(agent: Agent) -> tuple[CustomTool, ...]:
    """Return the tools that need a function of the embedding program."""
    return tuple(each for each in agent.custom if each.name != SUBMIT_OUTPUT)


_CHECKED = {"type", "anyOf", "enum", "items", "properties", "required", "additionalProperties", *_LIMITS}
_WORDS = {"title", "description", "default", "discriminator", "examples"}


def unchecked(schema: Mapping[str, Any]) -> str:
    """Return a keyword of a schema without references that `schema_problem` does not check; empty for none."""
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    below = [
        each for each in (*below, schema.get("items"), schema.get("additionalProperties")) if isinstance(each, dict)
    ]
    return next(iter(schema.keys() - _CHECKED - _WORDS), "") or next(filter(None, map(unchecked, below)), "")


def schema_problem(value: Any, schema: Any, at: str = "input") -> str:
    """Return why a value does not fit a JSON schema without references, as text for the model; empty if it fits."""
    if not isinstance(schema, dict):
        return f"{at} is not allowed" if schema is False else ""
    if "anyOf" in schema:
        problems = [schema_problem(value, each, at) for each in schema["anyOf"]]
        return "" if "" in problems else " or ".join(dict.fromkeys(problems))
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} must be one of {', '.join(map(repr, schema['enum']))}, not {value!r}"
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    fitting = {kind for kind in kinds if isinstance(value, _TYPES[kind])}
    if kinds and not fitting - ({"integer", "number"} if isinstance(value, bool) else set()):
        return f"{at} must be of the type {' or '.join(kinds)}, not {value!r}"
    for name, (kind, words, fits) in _LIMITS.items():
        if name in schema and isinstance(value, kind) and not fits(value, schema[name]):
            return f"{at} must be {words} {schema[name]}, not {value!r}"
    if isinstance(value, dict):
        return _object_problem(value, schema, at)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        found = (schema_problem(each, schema["items"], f"{at}[{place}]") for place, each in enumerate(value))
        return next(filter(None, found), "")
    return ""


def _object_problem(value: dict[str, Any], schema: Mapping[str, Any], at: str) -> str:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            return f"{at} has no {name!r}"
    for name, each in value.items():
        if name not in properties and more is False:
            return f"{at} has an unknown {name!r}; it takes {', '.join(properties)}"
        wanted = properties.get(name, more)
        if isinstance(wanted, dict) and (problem := schema_problem(each, wanted, f"{at}.{name}")):
            return problem
    return ""
