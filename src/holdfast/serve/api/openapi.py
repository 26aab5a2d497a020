"""The OpenAPI 3.1 description of the API, generated from the table of operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.serve.api.operations import PREFIX, Nothing, Operation
from holdfast.serve.bodies import Failed

_REF = "#/components/schemas/{name}"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the description of these operations."""
    operations = list(operations)
    types = {Failed, *(each.body for each in operations), *(each.result for each in operations if each.result)}
    queries = {each.query for each in operations}
    schemas, components = msgspec.json.schema_components(
        sorted(types, key=lambda each: each.__name__), ref_template=_REF
    )
    references = dict(zip(sorted(types, key=lambda each: each.__name__), schemas, strict=True))
    _, parameters = msgspec.json.schema_components(queries, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _described(each, references, parameters)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "browser": {"type": "apiKey", "in": "cookie", "name": "holdfast_PORT"},
            },
        },
        "security": [{"key": []}, {"browser": []}],
    }


def _described(each: Operation, references: dict[Any, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    text = inspect.getdoc(each.handler) or ""
    summary, _, more = text.partition("\n\n")
    content = {"schema": references[each.result]} if each.result else {"schema": {"type": "string"}}
    names = re.findall(r"{(\w+)}", each.path)
    found = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    query = parameters[each.query.__name__]
    found += [
        {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": schema}
        for name, schema in query["properties"].items()
    ]
    if each.takes_key:
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string"}})
    described: dict[str, Any] = {
        "operationId": operation_id(each),
        "summary": " ".join(summary.split()),
        "description": " ".join([more, f"Needs the role {each.role}."]).strip(),
        "parameters": found,
        "responses": {
            "200": {"description": "Done", "content": {each.media_type: content}},
            "default": {"description": "Refused", "content": {"application/json": {"schema": references[Failed]}}},
        },
    }
    if each.method == "POST":
        required = each.body is not Nothing and bool(msgspec.structs.fields(each.body)[0].required)
        described["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": references[each.body]}},
        }
    return described


def operation_id(each: Operation) -> str:
    """The name of an operation: its method and the words of its path."""
    return "_".join([each.method.lower(), *re.findall(r"\w+", each.path)])
