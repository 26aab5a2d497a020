"""Egress policy: the destinations, requests, and secrets that it allows, and a strict parser of hosts and paths.

Ambiguous bytes could pass the policy under one reading and reach a server under another. So a host, port, or path has
the one form that all servers read alike, or raises `Malformed`; only the case of names is normalized.
"""

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
from holdfast.patterns import lazy

_LABEL = lazy(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?|_[a-z0-9_-]{0,61}[a-z0-9]")
_NUMBER = lazy(r"[0-9]+|0x[0-9a-f]*")
_AUTHORITY = lazy(rb"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_TARGET = lazy(rb"/[!-~]*")
_ABSOLUTE = lazy(rb"http://([^/?#]*)(/[!-~]*)?")
_PERCENT = lazy(r"%([0-9A-Fa-f]{2})?")
_OVERRIDE = lazy(
    rb"x-(?:http-)?method(?:-override)?|x-http-method.*|x-(?:original|rewrite|rewritten|forwarded|override|proxy|real"
    rb"|envoy|accel|waws|sendfile).*|forwarded.*|x-host|x-http-host.*|x-(?:url|uri|path|scheme)|request-uri|destination"
)
_SLASHES = "\u2044\u2215\u29f8\u2216\u29f9\u29f5"
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")

NAME_MAX = 253
"""Longest host name, in characters."""


class Malformed(Exception):
    """A host, port, or path without a single meaning. The message gives the reason without repeating the value."""


class Place(NamedTuple):
    """A host, as a lower-case name or an address in canonical form, and a port."""

    host: str
    port: int


def shown(place: Place) -> str:
    """Format a place as `host:port`."""
    return f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"


def read_host(text: str) -> str:
    """Return the canonical form of a host name or address; IPv6 may have brackets. Raises `Malformed`."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Malformed("a host may have ASCII letters only")
    name = text.lower()
    if name.startswith("["):
        if not name.endswith("]"):
            raise Malformed("a bracket of an address is missing")
        name = name[1:-1]
        if ":" not in name:
            raise Malformed("only an IPv6 address may have brackets")
    if ":" in name:
        return _address_6(name)
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address_4(name)
    if len(name) > NAME_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise Malformed("it is not a host name")
    return name


def _address_4(text: str) -> str:
    """Parse a name that ends in a number: some parsers take it for an address, so it must be a canonical one."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise Malformed("an address needs four decimal numbers") from None


def _address_6(text: str) -> str:
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        raise Malformed("it is not an address") from None
    if found.scope_id is not None:
        raise Malformed("an address must not have a zone")
    return str(found)


def read_authority(data: bytes, default_port: int | None = None) -> Place:
    """Parse `host:port` strictly: no user, no blanks, only plain decimal numbers. Raises `Malformed`."""
    match = _AUTHORITY.fullmatch(data)
    if match is None:
        raise Malformed("it is not a host and port")
    host, port = match.groups()
    if port is None and default_port is None:
        raise Malformed("the port is missing")
    if host.startswith(b"[") is False and b":" in host:
        raise Malformed("an IPv6 address needs brackets")
    number = default_port if port is None else int(port)
    if number is None or not 0 < number < 65536 or (port is not None and port.startswith(b"0")):
        raise Malformed("it is not a port")
    try:
        text = host.decode("ascii")
    except UnicodeDecodeError:
        raise Malformed("a host may have ASCII letters only") from None
    return Place(read_host(text), number)


def read_absolute(target: bytes) -> tuple[Place, bytes]:
    """Split `http://host[:port]/path?query` into its place and the rest. Raises `Malformed`."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise Malformed("it is not an http:// address")
    authority, rest = match.groups()
    return read_authority(authority, 80), check_target(rest or b"/")


def check_target(target: bytes) -> bytes:
    """Return a path with its query if it is well-formed. Raises `Malformed`."""
    if _TARGET.fullmatch(target) is None or b"#" in target:
        raise Malformed("the path of a request must begin with a slash")
    return target


def path_of(target: bytes) -> str:
    """Return the path of a target for display, without the query, which may be private."""
    return target.partition(b"?")[0].decode("ascii", "replace")


def plain_path(path: str) -> str:
    """Normalize a path for matching against rules.

    Raises `Malformed` for a path that some server could read as a different one: segments that are one dot or begin
    with two, in any form of a dot, empty segments, backslashes, encoded slashes, bytes that are not UTF-8, or
    characters that are encoded twice.
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
    """Raise `Malformed` for a dot segment in the eyes of a server that folds or drops special characters."""
    try:
        text = unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the path has bytes that are not UTF-8") from None
    folded = unicodedata.normalize("NFKC", text)
    if folded.count("/") != text.count("/") or "\\" in folded or any(mark in text for mark in _SLASHES):
        raise Malformed("the path has a character that looks like a slash")
    for segment in folded.split("/"):
        shape = "".join(char for char in segment if unicodedata.category(char)[0] not in "CZM")
        if shape.startswith("..") or shape.partition(";")[0] == ".":
            raise Malformed("the path has a dot segment")


def _decode(match: re.Match[str]) -> str:
    """Decode a percent-encoded character where that does not change the path."""
    if match[1] is None:
        raise Malformed("the path has a percent sign that encodes nothing")
    char = chr(int(match[1], 16))
    if char in "/\\%" or not " " <= char != "\x7f":
        raise Malformed("the path has an encoded slash, percent sign or control character")
    return char if char in _UNRESERVED else match[0].upper()


TLS_PORT = 443
"""Port of a host that is allowed because a secret is bound to it."""

PLAIN_PORT = 80
"""Port of requests without TLS."""


class Rules:
    """The destinations that a policy allows: those it lists, and unlisted hosts of secrets on port 443.

    `registries` are the hosts of the package registries. Raises `EgressUnavailable` for an invalid policy.
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
                        f"the egress policy names the invalid port {port} for {host}; no request was allowed"
                    )
                self._open.setdefault(Place(host, port), []).append(destination)
            if destination.plain:
                self._plain.setdefault(Place(host, PLAIN_PORT), []).append(destination)

    def is_registry(self, place: Place) -> bool:
        """Return True for a place that is allowed only as a package registry, not by name."""
        return place in self._registries

    def open(self, place: Place) -> tuple[Destination, ...]:
        """Return the destinations of the policy that allow a tunnel to the place."""
        return tuple(self._open.get(place, ()))

    def plain(self, place: Place) -> tuple[Destination, ...]:
        """Return the destinations of the policy that allow requests without TLS to the place."""
        return tuple(self._plain.get(place, ()))

    @property
    def bound(self) -> tuple[str, ...]:
        """Hosts that a secret is bound to."""
        return tuple(self._uses)

    def uses(self, host: str) -> tuple[SecretUse, ...]:
        """Return the secrets that are bound to the host."""
        return tuple(self._uses.get(host, ()))


def request_fits(destinations: Sequence[Destination], method: str, path: str) -> str:
    """Return the reason why no destination allows the request; empty if one does."""
    said = ""
    for destination in destinations:
        said = _fits(destination.methods, destination.paths, method, path)
        if not said:
            return ""
    return said


def use_fits(use: SecretUse, method: str, path: str) -> str:
    """Return the reason why the secret may not be used for the request; empty if it may."""
    return _fits(use.methods, use.paths, method, path)


def is_bounded(rules: Sequence[Destination | SecretUse]) -> bool:
    """Return True if a rule depends on the method or path."""
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
            f"the egress policy names the host {host!r}, and {error}; no request was allowed. Write the exact name, "
            "without wildcards, port or path"
        ) from None


def is_override(name: bytes) -> bool:
    """Return True for a header from which some server takes the method, path, or host of a request."""
    return _OVERRIDE.fullmatch(name.lower().replace(b"_", b"-")) is not None
