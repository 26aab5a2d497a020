"""Egress in memory, with the verbs and semantics of the real one and no upstream."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from holdfast.egress.base import Gateway, Notes
from holdfast.errors import EgressUnavailable
from holdfast.facts.hands import EgressSeen
from holdfast.facts.session import Destination, EgressPolicy, SecretUse

Verdict = Literal["allowed", "refused", "held"]

PORT = 3128


class _Proxy:
    """State of one session: its policy while a proxy is running, and its journal."""

    def __init__(self) -> None:
        self.policy = EgressPolicy()
        self.held: tuple[str, ...] = ()
        self.wary = False
        self.strangers = False
        self.uid = -1
        self.alive = False
        self.journal: list[EgressSeen] = []


class FakeEgress:
    """Egress in memory. `request` simulates a program in the sandbox.

    `registries` are the hosts that `EgressPolicy.registries` allows. While `broken` is not empty, `open` fails with
    that reason.
    """

    def __init__(self, registries: Sequence[str] = ("registry.test",)) -> None:
        self.registries = tuple(registries)
        self.broken = ""
        self._proxies: dict[str, _Proxy] = {}

    async def open(
        self, session_id: str, policy: EgressPolicy, *, uid: int, held: tuple[str, ...] = (), wary: bool = False
    ) -> Gateway:
        """See `Egress.open`. Raises `EgressUnavailable` while `broken`."""
        if self.broken:
            raise EgressUnavailable(self.broken)
        proxy = self._proxies.setdefault(session_id, _Proxy())
        proxy.strangers = proxy.strangers and proxy.alive
        proxy.policy, proxy.held, proxy.wary, proxy.uid, proxy.alive = policy, held, wary, uid, True
        env = {"https_proxy": f"http://127.0.0.1:{PORT}"}
        env.update({use.variable: placeholder(session_id, use.name) for use in policy.secrets if use.variable})
        return Gateway(f"/fake/{session_id}/proxy.sock", PORT, env)

    async def change(
        self, session_id: str, policy: EgressPolicy, *, held: tuple[str, ...] = (), wary: bool = False
    ) -> None:
        """See `Egress.change`."""
        proxy = self._proxies.get(session_id)
        if proxy is not None and proxy.alive:
            proxy.policy, proxy.held, proxy.wary = policy, held, wary

    async def notes(self, session_id: str, after: int) -> Notes:
        """See `Egress.notes`; kinds come in the order of their first request."""
        proxy = self._proxies.get(session_id, _Proxy())
        kinds: dict[EgressSeen, EgressSeen] = {}
        for seen in proxy.journal[after:]:
            kind = msgspec.structs.replace(seen, sent=0, received=0)
            before = kinds.get(kind)
            kinds[kind] = seen if before is None else added(before, seen)
        return Notes(max(after, len(proxy.journal)), tuple(kinds.values()))

    async def close(self, session_id: str) -> None:
        """See `Egress.close`."""
        if session_id in self._proxies:
            self._proxies[session_id].alive = False

    async def forget(self, session_id: str) -> None:
        """See `Egress.forget`."""
        self._proxies.pop(session_id, None)

    # --- for tests ---

    def alive(self) -> list[str]:
        """Return the sessions that have a running proxy."""
        return [session_id for session_id, proxy in self._proxies.items() if proxy.alive]

    def secrets(self, session_id: str) -> tuple[str, ...]:
        """Return the names of the secrets in its policy."""
        return tuple(each.name for each in self._proxies[session_id].policy.secrets)

    def held(self, session_id: str) -> tuple[str, ...]:
        """Return the names of the secrets that are held now."""
        return self._proxies[session_id].held

    def kill(self, session_id: str) -> None:
        """Kill the proxy; its notes remain."""
        self._proxies[session_id].alive = False

    def request(
        self,
        session_id: str,
        host: str,
        *,
        port: int = 443,
        method: str = "GET",
        path: str = "/",
        secret: str = "",
        sent: int = 0,
        received: int = 100,
    ) -> Verdict:
        """Make a request from the sandbox, with the placeholder of `secret` in a header, and return the verdict.

        Raises `ConnectionError` without a proxy.
        """
        proxy = self._proxies.get(session_id)
        if proxy is None or not proxy.alive:
            raise ConnectionError("no proxy listens")
        verdict, reason = self._judge(proxy, host, port, method, path, secret)
        passed = verdict == "allowed"
        registry = passed and host in self.registries and not _named(proxy.policy, host, port)
        proxy.strangers = proxy.strangers or (passed and not registry)
        proxy.journal.append(
            EgressSeen(
                verdict,
                host,
                port,
                reason=reason,
                method=method,
                path=path,
                secret=secret,
                registry=registry,
                sent=sent if passed else 0,
                received=received if passed else 0,
            )
        )
        return verdict

    def _judge(self, proxy: _Proxy, host: str, port: int, method: str, path: str, secret: str) -> tuple[Verdict, str]:
        policy = proxy.policy
        use = next((each for each in policy.secrets if each.name == secret), None)
        if secret and (use is None or not _may_use(use, host, port, method, path)):
            return "refused", "the secret is not bound to this request"
        if use is not None:
            held = secret in proxy.held or (proxy.wary and proxy.strangers)
            return ("held", "the secret needs an approval first") if held else ("allowed", "")
        known = policy.registries and host in self.registries and port == 443
        if known or _named(policy, host, port, method, path):
            return "allowed", ""
        return "refused", "not in the policy"


def placeholder(session_id: str, name: str) -> str:
    """Return the placeholder of a secret in the sandbox of a session."""
    return f"placeholder-{session_id}-{name}"


def added(one: EgressSeen, other: EgressSeen) -> EgressSeen:
    """Add up two notes of one kind."""
    return msgspec.structs.replace(
        one, count=one.count + other.count, sent=one.sent + other.sent, received=one.received + other.received
    )


def _named(policy: EgressPolicy, host: str, port: int, method: str = "", path: str = "") -> bool:
    """Return True for a host that is listed, or that a secret is bound to."""
    listed = any(_fits(each, host, port, method, path) for each in policy.allow)
    return listed or (port == 443 and any(host in use.hosts for use in policy.secrets))


def _fits(place: Destination, host: str, port: int, method: str, path: str) -> bool:
    ports = (*place.ports, 80) if place.plain else place.ports
    methods = not method or not place.methods or method in place.methods
    paths = not path or not place.paths or any(fnmatchcase(path, each) for each in place.paths)
    return host == place.host and port in ports and methods and paths


def _may_use(use: SecretUse, host: str, port: int, method: str, path: str) -> bool:
    methods = not use.methods or method in use.methods
    paths = not use.paths or any(fnmatchcase(path, each) for each in use.paths)
    return host in use.hosts and port == 443 and methods and paths
