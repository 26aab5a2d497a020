"""How tables of holdfast.toml are read: each key by a function of its own, each complaint with a right example."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.app.settings.config import budget_pico, count, known_key
from holdfast.errors import UsageError

Read = Callable[[Any], Any]
"""A value as it stands in the file to the one of the policy. Raises `ValueError`."""


@dataclass(frozen=True)
class Key:
    """A key of a table: how it is read, and the policy's field when that has another name."""

    read: Read
    field: str = ""


def read_table(where: str, values: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    """The fields that a table sets. Raises `UsageError` with the key, and `where` it is."""
    found = {}
    for name, value in values.items():
        known_key(name, keys, where)
        key = keys[name]
        try:
            found[key.field or name] = key.read(value)
        except ValueError as error:
            raise UsageError(f"{name} in {where}: {error}") from error
    return found


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""What a table of somebody's own can be called."""


def named_tables(family: str, tables: Mapping[str, Any], example: str) -> dict[str, dict[str, Any]]:
    """The tables `[family.NAME]`, in order. Raises `UsageError`."""
    for name, table in tables.items():
        if NAME.fullmatch(name) is None:
            raise UsageError(
                f"[{family}.{name!r}] has a name that cannot be used: take letters, digits, - and _, up to 32"
            )
        if not isinstance(table, dict):
            raise UsageError(f"{family}.{name} has to be a table; an example is: [{family}.{name}] {example}")
    return dict(tables)


# --- kinds of values -------------------------------------------------------------------------------


def person(value: Any) -> str:
    """The name of a person."""
    text = value.removeprefix("user:") if isinstance(value, str) else ""
    if not text or not text.isprintable() or any(char.isspace() for char in text):
        raise ValueError(f'{value!r} is no name; an example is "anna"')
    return text


def persons(value: Any) -> tuple[str, ...]:
    """Names of people."""
    if not isinstance(value, list):
        raise ValueError(f'{value!r} has to be a list of names, such as ["anna", "ben"]')
    return tuple(map(person, value))


def yes_or_no(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} has to be true or false")
    return value


def one_of(*words: str) -> Read:
    """One of some words."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} has to be one of {', '.join(words)}")
        return str(value)

    return read


def some_of(words: Collection[str]) -> Read:
    """A list of some words."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(word in words for word in value):
            raise ValueError(f"{value!r} has to be a list of some of {', '.join(words)}")
        return tuple(dict.fromkeys(value))

    return read


def texts(example: str) -> Read:
    """A list of texts that are not empty. `example` is such a list as it stands in a file."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(is_text(each) for each in value):
            raise ValueError(f"{value!r} has to be a list of texts, such as {example}")
        return tuple(value)

    return read


def text(example: str) -> Read:
    """One line of text that is not empty."""

    def read(value: Any) -> str:
        if not is_text(value) or not value.isprintable():
            raise ValueError(f'{value!r} has to be text, such as "{example}"')
        return str(value)

    return read


def is_text(value: Any) -> bool:
    """Whether it is text with something in it."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def or_none(read: Read) -> Read:
    """The same, or `"none"` for no limit."""
    return lambda value: None if value == "none" else read(value)


def money(value: Any) -> int | None:
    """An amount of dollars, in pico-dollars."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not an amount of dollars, such as 2.50")
    try:
        return budget_pico(str(value))
    except UsageError as error:
        raise ValueError(f"{value!r} is not an amount of dollars above 0, such as 2.50") from error


def at_least(least: int) -> Read:
    """A whole number from `least`."""

    def read(value: Any) -> int:
        if value == least and isinstance(value, int) and not isinstance(value, bool):
            return least
        return count(value)

    return read
