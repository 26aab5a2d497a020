"""A policy made ready to be asked: which places, which requests, which secrets."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from holdfast.egress.names import Malformed, Place, plain_path, read_host
from holdfast.errors import EgressUnavailable
from holdfast.facts.session import Destination, EgressPolicy, SecretUse

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
