"""Readers of holdfast.toml tables, key by key: types of values, and network destinations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.app.settings.config import budget_pico
from holdfast.app.settings.values import count, known_key
from holdfast.egress.rules import Malformed, Place, is_override, read_authority, read_host
from holdfast.errors import UsageError
from holdfast.facts.session import Destination

Read = Callable[[Any], Any]
"""Converts a value in the file to the policy's value. Raises `ValueError`."""


@dataclass(frozen=True)
class Key:
    """A key of a table: its reader, and the policy's field if that has another name."""

    read: Read
    field: str = ""


def read_table(where: str, values: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    """The fields that a table sets. Raises `UsageError` with the key and `where`, the table's name."""
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
"""The valid name of a user-defined table."""


def named_tables(family: str, tables: Mapping[str, Any], example: str) -> dict[str, dict[str, Any]]:
    """The tables `[family.NAME]`, in order. Raises `UsageError`."""
    for name, table in tables.items():
        if NAME.fullmatch(name) is None:
            raise UsageError(
                f"[{family}.{name!r}] has a name that cannot be used: take letters, digits, - and _, up to 32"
            )
        if not isinstance(table, dict):
            raise UsageError(f"{family}.{name} has to be a table; for example: [{family}.{name}] {example}")
    return dict(tables)


# --- kinds of values -------------------------------------------------------------------------------


def person(value: Any) -> str:
    """A user's name."""
    text = value.removeprefix("user:") if isinstance(value, str) else ""
    if not text or not text.isprintable() or any(char.isspace() for char in text):
        raise ValueError(f'{value!r} is no name; for example: "anna"')
    return text


def persons(value: Any) -> tuple[str, ...]:
    """Users' names."""
    if not isinstance(value, list):
        raise ValueError(f'{value!r} has to be a list of names, such as ["anna", "ben"]')
    return tuple(map(person, value))


def yes_or_no(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} has to be true or false")
    return value


def one_of(*words: str) -> Read:
    """One of several words."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} has to be one of {', '.join(words)}")
        return str(value)

    return read


def some_of(words: Collection[str]) -> Read:
    """A list of some of `words`."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(word, str) and word in words for word in value):
            raise ValueError(f"{value!r} has to be a list of some of {', '.join(words)}")
        return tuple(dict.fromkeys(value))

    return read


def texts(example: str) -> Read:
    """A list of nonempty texts. `example` is such a list in TOML."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(is_text(each) for each in value):
            raise ValueError(f"{value!r} has to be a list of texts, such as {example}")
        return tuple(value)

    return read


def text(example: str) -> Read:
    """One nonempty line of text."""

    def read(value: Any) -> str:
        if not is_text(value) or not value.isprintable():
            raise ValueError(f'{value!r} has to be text, such as "{example}"')
        return str(value)

    return read


def is_text(value: Any) -> bool:
    """True for nonblank text."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def or_none(read: Read) -> Read:
    """The same reader, plus `"none"` for no limit."""
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
    """A whole number of at least `least`."""

    def read(value: Any) -> int:
        if value == least and isinstance(value, int) and not isinstance(value, bool):
            return least
        return count(value)

    return read


HTTPS = 443
EXAMPLE = 'allow = ["api.example.com", "git.example.com:8443"]'
PORTS_MAX = 16


def named_destination(given: str) -> Destination:
    """A destination given by the user, as `HOST` or `HOST:PORT`. Raises `UsageError`."""
    try:
        return _destination(given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def destinations(value: Any) -> tuple[Destination, ...]:
    """The destinations in a list. Raises `ValueError`."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} has to be a list of hosts; for example: {EXAMPLE}")
    return merged(tuple(map(_destination, value)))


def merged(found: Sequence[Destination]) -> tuple[Destination, ...]:
    """The destinations in order, without duplicates."""
    return tuple(dict.fromkeys(found))


def _destination(value: Any) -> Destination:
    if isinstance(value, str):
        place = _place(value)
        return Destination(place.host, (place.port,))
    if not isinstance(value, dict) or "host" not in value:
        raise ValueError(f"{value!r} names no host; for example: {EXAMPLE}")
    try:
        fields = read_table(f"the host {value['host']!r}", value, _DESTINATION)
    except UsageError as error:
        raise ValueError(str(error)) from error
    place = fields.pop("host")
    if "ports" in fields and place.port != HTTPS:
        raise ValueError(f"the host {value['host']!r} has a port, and ports beside it; leave one of them out")
    return Destination(place.host, fields.pop("ports", (place.port,)), **fields)


def _place(value: Any) -> Place:
    if not is_text(value):
        raise ValueError(f"{value!r} is no host; for example: {EXAMPLE}")
    if "*" in value:
        raise ValueError(f"{value!r} has a wildcard; name each host exactly, such as api.example.com")
    if "/" in value:
        raise ValueError(
            f"{value!r} is an address; name the host alone, such as api.example.com or git.example.com:8443"
        )
    try:
        bare = value.startswith("[") or value.count(":") < 2
        return read_authority(value.encode(), HTTPS) if bare else Place(read_host(value), HTTPS)
    except (Malformed, UnicodeError) as error:
        raise ValueError(
            f"{value!r} is no host: {error}; for example: api.example.com or git.example.com:8443"
        ) from None


def _ports(value: Any) -> tuple[int, ...]:
    ports = value if isinstance(value, list) else [value]
    if not 0 < len(ports) <= PORTS_MAX or not all(
        isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65_536 for port in ports
    ):
        raise ValueError(f"{value!r} has to be a list of up to {PORTS_MAX} ports, such as [443, 8443]")
    return tuple(dict.fromkeys(ports))


def methods(value: Any) -> tuple[str, ...]:
    """HTTP request methods. Raises `ValueError`."""
    names = texts('["GET", "POST"]')(value)
    for name in names:
        if not (name.isascii() and name.isalpha() and name.isupper()):
            raise ValueError(f'{name!r} is no method of a request, such as "GET" or "POST"')
    return tuple(names)


def paths(value: Any) -> tuple[str, ...]:
    """Globs over request paths. Raises `ValueError`."""
    globs = texts('["/v1/*"]')(value)
    for glob in globs:
        if not glob.startswith("/") or "?" in glob:
            raise ValueError(f"{glob!r} is no glob over paths, which begin with / and have no query, such as /v1/*")
    return tuple(globs)


def headers(value: Any) -> tuple[str, ...]:
    """Names of headers in addition to the usual ones. Raises `ValueError`."""
    names = tuple(name.lower() for name in texts('["x-team"]')(value))
    for name in names:
        if _HEADER.fullmatch(name) is None or is_override(name.encode()):
            raise ValueError(f'{name!r} is no header that a request with bounds may have, such as "x-team"')
    return tuple(dict.fromkeys(names))


_HEADER = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_DESTINATION = {
    "host": Key(_place),
    "ports": Key(_ports),
    "methods": Key(methods),
    "paths": Key(paths),
    "headers": Key(headers),
    "plain": Key(yes_or_no),
    "private": Key(yes_or_no),
}
