"""JSON parser that keeps the position of each value, for errors with a line and for edits in place."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from holdfast.errors import ContractInvalid

BYTES_MAX = 8 << 20
"""Largest accepted contract file, in bytes."""

DEPTH_MAX = 60


class Node(msgspec.Struct):
    """Value with its span in the text. `members` are the values of an object, `elements` those of an array."""

    value: Any
    start: int
    end: int
    members: dict[str, Node] = {}
    elements: list[Node] = []

    @property
    def kind(self) -> str:
        """Type of the value, in words."""
        if self.value is None:
            return "null"
        kinds = ((bool, "true or false"), (str, "text"), (int | float, "a number"), (list, "a list"))
        return next((name for kind, name in kinds if isinstance(self.value, kind)), "an object")


class Source(msgspec.Struct, frozen=True):
    """Text and its file name, for error messages."""

    name: str
    text: str

    def line(self, position: int) -> int:
        """Return the line number of a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def refuse(self, position: int, what: str, right: str) -> NoReturn:
        """Raise `ContractInvalid` with the line, the problem there, and a valid form."""
        raise ContractInvalid(f"{self.name}, line {self.line(position)}: {what}; {right}")


def decode(data: bytes, name: str) -> Source:
    """Decode a file. Raises `ContractInvalid` if it is not UTF-8, empty or too large."""
    if len(data) > BYTES_MAX:
        raise ContractInvalid(f"{name} has {len(data)} bytes (limit {BYTES_MAX}); split the contract")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ContractInvalid(
            f"{name} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8 and try again"
        ) from None
    if not text.strip("\ufeff \t\r\n"):
        raise ContractInvalid(f"{name} is empty; {RIGHT_LIST}")
    return Source(name, text)


RIGHT_LIST = (
    'a right form is [{"id": "greet", "description": "greet() greets by name", "check": "pytest tests/test_greet.py", '
    '"passes": false}]'
)


def parse(source: Source) -> Node:
    """Parse JSON. Raises `ContractInvalid` with the line."""
    reader = _Reader(source)
    node = reader.value(reader.space(1 if source.text.startswith("\ufeff") else 0), 0)
    after = reader.space(node.end)
    if after < len(source.text):
        source.refuse(after, "there is text after the end of the JSON", "delete it")
    return node


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.decoder = json.JSONDecoder(parse_constant=_constant)

    def space(self, at: int) -> int:
        """Return the first position from `at` that is not white space."""
        while at < len(self.text) and self.text[at] in " \t\r\n":
            at += 1
        return at

    def value(self, at: int, depth: int) -> Node:
        if depth > DEPTH_MAX:
            self.source.refuse(at, f"values are nested more than {DEPTH_MAX} deep", RIGHT_LIST)
        first = self.text[at : at + 1]
        if first == "{":
            return self.object(at, depth)
        if first == "[":
            return self.array(at, depth)
        return self.scalar(at)

    def scalar(self, at: int) -> Node:
        try:
            value, end = self.decoder.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            self.source.refuse(error.pos, f"this is not JSON: {error.msg}", RIGHT_LIST)
        except ValueError as error:
            self.source.refuse(at, f"this is not JSON: {error}", RIGHT_LIST)
        return Node(value, at, end)

    def object(self, at: int, depth: int) -> Node:
        members: dict[str, Node] = {}
        here = self.space(at + 1)
        while self.text[here : here + 1] != "}":
            if self.text[here : here + 1] != '"':
                self.source.refuse(here, "this is not JSON: expected a name in double quotes", RIGHT_LIST)
            name = self.scalar(here)
            if name.value in members:
                self.source.refuse(here, f"duplicate key {name.value!r}", "delete one of them")
            here = self.space(name.end)
            if self.text[here : here + 1] != ":":
                self.source.refuse(here, "this is not JSON: expected a colon", RIGHT_LIST)
            members[name.value] = self.value(self.space(here + 1), depth + 1)
            here = self.next(members[name.value].end, "}")
        return Node({key: node.value for key, node in members.items()}, at, here + 1, members=members)

    def array(self, at: int, depth: int) -> Node:
        elements: list[Node] = []
        here = self.space(at + 1)
        while self.text[here : here + 1] != "]":
            elements.append(self.value(here, depth + 1))
            here = self.next(elements[-1].end, "]")
        return Node([node.value for node in elements], at, here + 1, elements=elements)

    def next(self, at: int, close: str) -> int:
        """Return the start of the next value, or the position of the closing bracket."""
        here = self.space(at)
        found = self.text[here : here + 1]
        if found == close:
            return here
        if found != ",":
            self.source.refuse(here, f"this is not JSON: expected a comma or {close}", RIGHT_LIST)
        after = self.space(here + 1)
        if self.text[after : after + 1] == close:
            self.source.refuse(here, "this is not JSON: trailing comma", "delete it")
        return after
