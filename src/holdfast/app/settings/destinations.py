"""Places outside as people write them: `"api.example.com"`, `"host:8443"`, `{host = "…", methods = ["GET"]}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.app.settings.tables import Key, is_text, read_table, texts, yes_or_no
from holdfast.egress.http import is_override
from holdfast.egress.rules import Malformed, Place, read_authority, read_host
from holdfast.errors import UsageError
from holdfast.facts.session import Destination

HTTPS = 443
EXAMPLE = 'allow = ["api.example.com", "git.example.com:8443"]'
PORTS_MAX = 16


def named_destination(given: str) -> Destination:
    """A place that a person names, as `HOST` or `HOST:PORT`. Raises `UsageError`."""
    try:
        return _destination(given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def destinations(value: Any) -> tuple[Destination, ...]:
    """The places of a list. Raises `ValueError`."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} has to be a list of hosts; an example is {EXAMPLE}")
    return merged(tuple(map(_destination, value)))


def merged(found: Sequence[Destination]) -> tuple[Destination, ...]:
    """Each place once, in order."""
    return tuple(dict.fromkeys(found))


def _destination(value: Any) -> Destination:
    if isinstance(value, str):
        place = _place(value)
        return Destination(place.host, (place.port,))
    if not isinstance(value, dict) or "host" not in value:
        raise ValueError(f"{value!r} names no host; an example is {EXAMPLE}")
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
        raise ValueError(f"{value!r} is no host; an example is {EXAMPLE}")
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
            f"{value!r} is no host: {error}; an example is api.example.com or git.example.com:8443"
        ) from None


def _ports(value: Any) -> tuple[int, ...]:
    ports = value if isinstance(value, list) else [value]
    if not 0 < len(ports) <= PORTS_MAX or not all(
        isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65_536 for port in ports
    ):
        raise ValueError(f"{value!r} has to be a list of up to {PORTS_MAX} ports, such as [443, 8443]")
    return tuple(dict.fromkeys(ports))


def methods(value: Any) -> tuple[str, ...]:
    """Methods of requests. Raises `ValueError`."""
    names = texts('["GET", "POST"]')(value)
    for name in names:
        if not (name.isascii() and name.isalpha() and name.isupper()):
            raise ValueError(f'{name!r} is no method of a request, such as "GET" or "POST"')
    return tuple(names)


def paths(value: Any) -> tuple[str, ...]:
    """Globs over paths of requests. Raises `ValueError`."""
    globs = texts('["/v1/*"]')(value)
    for glob in globs:
        if not glob.startswith("/") or "?" in glob:
            raise ValueError(f"{glob!r} is no glob over paths, which begin with / and have no query, such as /v1/*")
    return tuple(globs)


def headers(value: Any) -> tuple[str, ...]:
    """Names of headers beside the usual ones. Raises `ValueError`."""
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
