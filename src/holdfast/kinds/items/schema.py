"""JSON schemas of results: checks of the schema itself, and of a result against it, by the `jsonschema` library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec

from holdfast.errors import CannotRunSafely, UsageError

_BOUNDS = (
    (("number", "integer"), "minimum", "maximum"),
    (("string",), "minLength", "maxLength"),
    (("array",), "minItems", "maxItems"),
    (("object",), "minProperties", "maxProperties"),
)
"""Types, and their keywords for a least and a most value. Without a value between them, no result is valid."""


@cache
def _library() -> ModuleType:
    try:
        return import_module("jsonschema")
    except ImportError:
        raise CannotRunSafely(
            "results are checked with the package jsonschema, which is not installed; nothing was lost. Type: "
            "pip install 'holdfast[items]'"
        ) from None


def check_schema(schema: Any) -> None:
    """Raise `UsageError` for an invalid schema, one that refers to other documents, and one that no result can meet."""
    library = _library()
    if not isinstance(schema, dict):
        raise UsageError("the schema is not a JSON object; nothing was started")
    try:
        library.validators.validator_for(schema).check_schema(schema)
    except library.exceptions.SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "its top"
        raise UsageError(f"the schema is not a JSON schema ({place}: {error.message}); nothing was started") from error
    for part in _parts(schema):
        reference = part.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise UsageError(f"the schema refers to another document ({reference}), which is not read; put it inside")
    if why := _impossible(schema):
        raise UsageError(f"no result can meet the schema: {why}; nothing was started. Correct the schema")


def problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Return why a value does not meet a schema, as text for the model; empty if it does."""
    library = _library()
    error = library.exceptions.best_match(compiled(msgspec.json.encode(schema)).iter_errors(value))
    if error is None:
        return ""
    return f"{error.json_path}: {error.message}"


@cache
def compiled(schema: bytes) -> Any:
    """Return the validator of an encoded schema."""
    whole = msgspec.json.decode(schema)
    return _library().validators.validator_for(whole)(whole)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schema and everything in it that may be one."""
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from _parts(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _parts(each)


def _impossible(schema: Any, at: str = "$") -> str:
    """Return a contradiction in a part of the schema that every result has to meet; empty if none is found.

    It finds common mistakes only: whether any value meets a schema cannot be decided in general.
    """
    if schema is False:
        return f"{at} allows nothing"
    if not isinstance(schema, dict):
        return ""
    for kinds, least, most in _BOUNDS:
        if schema.get("type") in kinds and least in schema and most in schema and schema[least] > schema[most]:
            return f"{at} needs a {least} of {schema[least]} and a {most} of {schema[most]}"
    own = {name: each for name, each in schema.items() if name != "enum"}
    closed = set(own) <= {"type", "const", "title", "description", *(word for _, *pair in _BOUNDS for word in pair)}
    if "enum" in schema and closed and all(problem(each, own) for each in schema["enum"]):
        return f"no value of the enum at {at} is valid"
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()) if schema.get("type") == "object" else ():
        if name not in properties and more is False and not schema.get("patternProperties"):
            return f"{at} requires {name!r}, which it does not allow"
        if why := _impossible(properties.get(name, True), f"{at}.{name}"):
            return why
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    found = [_impossible(each, at) for each in branches]
    if found and all(found):
        return found[0]
    return next(filter(None, (_impossible(each, at) for each in schema.get("allOf", ()))), "")
