"""A policy made ready to be asked: which places, which requests, which secrets."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from holdfast.errors import EgressUnavailable
from holdfast.facts.session import Destination, EgressPolicy, SecretUse

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?|_[a-z0-9_-]{0,61}[a-z0-9]")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_AUTHORITY = re.compile(rb"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_TARGET = re.compile(rb"/[!-~]*")
_ABSOLUTE = re.compile(rb"http://([^/?#]*)(/[!-~]*)?")
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})?")
_SLASHES = "\u2044\u2215\u29f8\u2216\u29f9\u29f5"
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")

NAME_MAX = 253
"""Characters in a host name at most."""


class Malformed(Exception):
    """What a client said has no single meaning. The message says what is wrong with it, without repeating it."""


class Place(NamedTuple):
    """A host, as a lower-case name or an address in its one canonical form, and a port."""

    host: str
    port: int


def shown(place: Place) -> str:
    """A place as requests name it: `host:port`."""
    return f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"


def read_host(text: str) -> str:
    """The canonical form of a host name or address; an IPv6 address may stand in brackets. Raises `Malformed`."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Malformed("a host has letters of plain ASCII only")
    name = text.lower()
    if name.startswith("["):
        if not name.endswith("]"):
            raise Malformed("a bracket of an address is missing")
        name = name[1:-1]
        if ":" not in name:
            raise Malformed("only an IPv6 address stands in brackets")
    if ":" in name:
        return _address_6(name)
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address_4(name)
    if len(name) > NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise Malformed("that is no host name")
    return name


def _address_4(text: str) -> str:
    """A name that ends in a number is an address to some readers: only the form that is one to all of them counts."""
    try:
        found = str(ipaddress.IPv4Address(text))
    except ValueError:
        raise Malformed("an address has four decimal numbers") from None
    return found


def _address_6(text: str) -> str:
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        raise Malformed("that is no address") from None
    if found.scope_id is not None:
        raise Malformed("an address has no zone here")
    return str(found)


def read_authority(data: bytes, default_port: int | None = None) -> Place:
    """`host:port`, strictly: no user, no blank, no other form of a number. Raises `Malformed`."""
    match = _AUTHORITY.fullmatch(data)
    if match is None:
        raise Malformed("that is no host and port")
    host, port = match.groups()
    if port is None and default_port is None:
        raise Malformed("the port is missing")
    if host.startswith(b"[") is False and b":" in host:
        raise Malformed("an IPv6 address stands in brackets")
    number = default_port if port is None else int(port)
    if number is None or not 0 < number < 65536 or (port is not None and port.startswith(b"0")):
        raise Malformed("that is no port")
    try:
        text = host.decode("ascii")
    except UnicodeDecodeError:
        raise Malformed("a host has letters of plain ASCII only") from None
    return Place(read_host(text), number)


def read_absolute(target: bytes) -> tuple[Place, bytes]:
    """The place and the rest of `http://host[:port]/path?query`. Raises `Malformed`."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise Malformed("that is no http:// address")
    authority, rest = match.groups()
    return read_authority(authority, 80), check_target(rest or b"/")


def check_target(target: bytes) -> bytes:
    """A path with its query, as a request names it. Raises `Malformed`."""
    if _TARGET.fullmatch(target) is None or b"#" in target:
        raise Malformed("a request names a path that begins with a slash")
    return target


def path_of(target: bytes) -> str:
    """The path alone, for people to read: without the query, which may hold what is private."""
    return target.partition(b"?")[0].decode("ascii", "replace")


def plain_path(path: str) -> str:
    """The path that rules are matched against: one form for all its spellings.

    Raises `Malformed` for one that some server would take for another path: with segments that begin with two dots or
    are one, in any form of a dot, empty segments, backslashes, encoded slashes, bytes that are no UTF-8, or characters
    that are encoded twice.
    """
    decoded = _PERCENT.sub(_decode, path)
    if "\\" in decoded:
        raise Malformed("the path has a backslash")
    _check_lookalikes(path)
    segments = decoded.split("/")[1:]
    for index, segment in enumerate(segments):
        if segment.startswith("..") or segment.partition(";")[0] == ".":
            raise Malformed("the path has a dot segment")
        if not segment and index < len(segments) - 1:
            raise Malformed("the path has an empty segment")
    return decoded


def _check_lookalikes(path: str) -> None:
    """Raise `Malformed` for what is a dot segment to a server that folds characters or drops those without a shape."""
    try:
        text = unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the path has bytes that are no UTF-8") from None
    folded = unicodedata.normalize("NFKC", text)
    if folded.count("/") != text.count("/") or "\\" in folded or any(mark in text for mark in _SLASHES):
        raise Malformed("the path has a character that looks like a slash")
    for segment in folded.split("/"):
        shape = "".join(char for char in segment if unicodedata.category(char)[0] not in "CZM")
        if shape.startswith("..") or shape.partition(";")[0] == ".":
            raise Malformed("the path has a dot segment")


def _decode(match: re.Match[str]) -> str:
    """What an encoded character stands for, where that changes nothing."""
    if match[1] is None:
        raise Malformed("the path has a percent sign that encodes nothing")
    char = chr(int(match[1], 16))
    if char in "/\\%" or not " " <= char != "\x7f":
        raise Malformed("the path has an encoded slash, percent sign or control character")
    return char if char in _UNRESERVED else match[0].upper()


TLS_PORT = 443
"""The port of a host that is allowed because a secret is bound to it."""

PLAIN_PORT = 80
"""The port of requests without TLS."""


class Rules:
    """What one policy lets through: what it lists, and hosts that have a secret and are not listed, on port 443.

    `registries` are the hosts that the policy's word for package registries stands for. Raises `EgressUnavailable` for
    a policy that cannot be meant.
    """

    def __init__(self, policy: EgressPolicy, registries: Sequence[Destination] = ()) -> None:
        self.policy = policy
        self._open: dict[Place, list[Destination]] = {}
        self._plain: dict[Place, list[Destination]] = {}
        self._uses: dict[str, list[SecretUse]] = {}
        self._add(policy.allow)
        named = {*self._open, *self._plain}
        if policy.registries:
            self._add(registries)
        self._registries = {*self._open, *self._plain} - named
        for use in policy.secrets:
            for name in use.hosts:
                host = _exact(name)
                self._uses.setdefault(host, []).append(use)
                if all(place.host != host for place in self._open):
                    self._open[Place(host, TLS_PORT)] = [Destination(host)]

    def _add(self, destinations: Sequence[Destination]) -> None:
        for destination in destinations:
            host = _exact(destination.host)
            for port in destination.ports:
                if not 0 < port < 65536:
                    raise EgressUnavailable(
                        f"{port} is no port, and the policy names it for {host}; nothing was let through: correct it"
                    )
                self._open.setdefault(Place(host, port), []).append(destination)
            if destination.plain:
                self._plain.setdefault(Place(host, PLAIN_PORT), []).append(destination)

    def is_registry(self, place: Place) -> bool:
        """True for what is allowed as one of the package registries, and not by name."""
        return place in self._registries

    def open(self, place: Place) -> tuple[Destination, ...]:
        """What allows a tunnel to that place; nothing when none may be made."""
        return tuple(self._open.get(place, ()))

    def plain(self, place: Place) -> tuple[Destination, ...]:
        """What allows requests without TLS to that place."""
        return tuple(self._plain.get(place, ()))

    @property
    def bound(self) -> tuple[str, ...]:
        """The hosts that have a secret."""
        return tuple(self._uses)

    def uses(self, host: str) -> tuple[SecretUse, ...]:
        """The secrets that are bound to that host."""
        return tuple(self._uses.get(host, ()))


def request_fits(destinations: Sequence[Destination], method: str, path: str) -> str:
    """Why no destination allows that request, such as a path of two meanings; empty when one does."""
    said = ""
    for destination in destinations:
        said = _fits(destination.methods, destination.paths, method, path)
        if not said:
            return ""
    return said


def use_fits(use: SecretUse, method: str, path: str) -> str:
    """Why that secret may not be used for that request; empty when it may."""
    return _fits(use.methods, use.paths, method, path)


def is_bounded(rules: Sequence[Destination | SecretUse]) -> bool:
    """True when one of these looks at the method or the path."""
    return any(rule.methods or rule.paths for rule in rules)


def _fits(methods: Sequence[str], paths: Sequence[str], method: str, path: str) -> str:
    if methods and method not in methods:
        return f"the policy does not allow {method} there"
    if not paths:
        return ""
    try:
        plain = plain_path(path)
    except Malformed as error:
        return str(error)
    if any(fnmatchcase(plain, pattern) for pattern in paths):
        return ""
    return "the policy does not allow that path"


def _exact(host: str) -> str:
    try:
        return read_host(host)
    except Malformed as error:
        raise EgressUnavailable(
            f"the egress policy names the host {host!r}, and {error}; nothing was let through: write the exact name, "
            "without wildcards, port or path"
        ) from None
