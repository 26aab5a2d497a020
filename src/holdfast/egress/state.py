"""State of one proxy: its policy, its secrets, its journal, and the use of its caps."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio

from holdfast.egress.certificates import Authority
from holdfast.egress.http import Head, Refusal
from holdfast.egress.journal import Journal
from holdfast.egress.placeholders import Placeholders
from holdfast.egress.rules import Place, Rules, path_of
from holdfast.egress.scrub import Forms
from holdfast.egress.upstream import Outward
from holdfast.errors import SecretUnavailable
from holdfast.facts.hands import EgressSeen
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import ReferenceVault

VALUES_MAX, VALUES_BYTES_MAX = 64, 16 << 10
"""Values of one secret, including former ones, masked in responses: number and bytes. The oldest is dropped first."""

REST_S = 2.0
"""Pause before a failed keyring or command is tried again, in seconds."""

_SLOW = ("keyring", "command")
"""Slow sources, read in a thread. For the others, a thread would cost more than the read."""


class State:
    """State shared by all connections of one proxy."""

    def __init__(
        self, rules: Rules, vault: ReferenceVault, journal: Journal, authority: Authority, outward: Outward
    ) -> None:
        self.rules = rules
        self.vault = vault
        self.journal = journal
        self.authority = authority
        self.outward = outward
        self.placeholders = Placeholders({})
        self.held: frozenset[str] = frozenset()
        self.wary = False
        self._strangers = False
        self.uids: set[int] = set()
        self._known: dict[str, list[Secret]] = {}  # by the secret's name, the newest last
        self._bound: dict[str, set[str]] = {}  # by host: the secrets that are or were bound to it
        self._forms: dict[str, Forms] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._noted = anyio.Event()

    def admit(self) -> None:
        """Count a request. Raises `Refusal` beyond the cap of the policy."""
        if self.journal.requests >= self.rules.policy.requests_max:
            raise Refusal(429, "the session has used up the requests that its policy allows")
        self.check_bytes()
        self.journal.requests += 1

    def count(self, size: int) -> None:
        """Count bytes of either direction. Raises `Refusal` beyond the cap of the policy."""
        self.journal.bytes += size
        self.check_bytes()

    def check_bytes(self) -> None:
        """Raise `Refusal` if the byte cap of the policy is used up."""
        if self.journal.bytes > self.rules.policy.bytes_max:
            raise Refusal(429, "the session has used up the bytes that its policy allows")

    def reads(self, place: Place) -> None:
        """Record that a response was read; its text is untrusted unless the place is a registry."""
        self._strangers = self._strangers or not self.rules.is_registry(place)

    def is_held(self, name: str) -> bool:
        """Return True if the use of the secret needs an approval first."""
        return name in self.held or (self.wary and self._strangers)

    def adopt(self, rules: Rules, vault: ReferenceVault) -> None:
        """Apply a policy. Values from fast sources are masked in responses from now on."""
        self.rules, self.vault = rules, vault
        self._failed.clear()
        for use in rules.policy.secrets:
            if not self._is_slow(use.name):
                self._remember(use.name, self._look(use.name))
        for host in rules.bound:
            self._bound.setdefault(host, set()).update(use.name for use in rules.uses(host))
        self._forms.clear()

    async def values(self, host: str, names: Sequence[str]) -> dict[str, Secret]:
        """Read the values of secrets, and mask them and all other secrets bound to the host in its responses.

        Raises `Refusal` if one is missing, or if a value that must be masked is not known.
        """
        found = {}
        for name in dict.fromkeys([*names, *(use.name for use in self.rules.uses(host))]):
            problem = await self._find(name)
            told = f"the secret {name} is not available; the session's owner can see why"
            if name in names:
                problem = problem or self.vault.expired(name)
                if problem:
                    raise Refusal(502, problem, secret=name, told=told)
                found[name] = self._known[name][-1]
            elif problem and name not in self._known:
                reason = f"no request goes to {host} while its responses cannot be searched for a secret: {problem}"
                raise Refusal(503, reason, secret=name, told=f"no request goes to {host} while {told}")
        return found

    def is_searched(self, host: str) -> bool:
        """Return True if a secret is bound to the host, or was at any time in the life of this proxy."""
        return host in self._bound

    def forms(self, host: str) -> Forms | None:
        """Return the forms to mask in responses of the host; None if no secret is or was bound to it."""
        if host in self._bound and host not in self._forms:
            names = sorted(self._bound[host])
            self._forms[host] = Forms(secret for name in names for secret in self._known.get(name, ()))
        return self._forms.get(host)

    async def _find(self, name: str) -> str:
        """Read the current value. Return the reason for a failure, empty on success."""
        slow = self._is_slow(name)
        failed_s, problem = self._failed.get(name, (0.0, ""))
        if slow and problem and anyio.current_time() - failed_s < REST_S:
            return problem
        aside = slow or self._lock.locked()  # never wait for another read in the event loop
        value = await anyio.to_thread.run_sync(self._look, name) if aside else self._look(name)
        self._remember(name, value)
        if isinstance(value, Secret):
            return ""
        self._failed[name] = anyio.current_time(), value
        return value

    def _look(self, name: str) -> Secret | str:
        with self._lock:
            try:
                return self.vault.current(name)
            except SecretUnavailable as error:
                return str(error)

    def _is_slow(self, name: str) -> bool:
        return name in self.vault.names() and self.vault.source(name).kind in _SLOW

    def _remember(self, name: str, value: Secret | str) -> None:
        known = self._known.get(name, [])
        if isinstance(value, str) or (known and known[-1].reveal() == value.reveal()):
            return
        known = [*(one for one in known if one.reveal() != value.reveal()), value][-VALUES_MAX:]
        while len(known) > 2 and sum(len(one.reveal()) for one in known) > VALUES_BYTES_MAX:
            del known[0]
        self._known[name] = known
        self._forms.clear()

    # --- notes ---

    async def noted(self) -> None:
        """Wait until there are notes to write."""
        await self._noted.wait()
        self._noted = anyio.Event()

    def allowed(self, place: Place, head: Head | None = None, *, sent: int = 0, received: int = 0, **more: str) -> None:
        """Note an allowed request."""
        self._note("allowed", place, head, sent=sent, received=received, **more)

    def refused(self, place: Place, head: Head | None, refusal: Refusal) -> None:
        """Note a refused request."""
        verdict = "held" if refusal.held else "refused"
        self._note(verdict, place, head, reason=refusal.reason, secret=refusal.secret)

    def _note(
        self,
        verdict: str,
        place: Place,
        head: Head | None,
        *,
        reason: str = "",
        secret: str = "",
        sent: int = 0,
        received: int = 0,
    ) -> None:
        self._noted.set()
        method = path = ""
        registry = verdict == "allowed" and self.rules.is_registry(place)
        if head is not None and head.method != "CONNECT":
            method, path = head.method, path_of(head.target)
        self.journal.note(
            EgressSeen(
                verdict=verdict,  # type: ignore[arg-type]
                host=place.host,
                port=place.port,
                reason=reason,
                method=method,
                path=path,
                secret=secret,
                registry=registry,
                sent=sent,
                received=received,
            )
        )
