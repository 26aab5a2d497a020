"""What one proxy knows: its policy in force, its secrets, what it noted, what is left of its caps."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio

from holdfast.egress.authority import Authority
from holdfast.egress.http import Head, Refusal
from holdfast.egress.journal import Journal
from holdfast.egress.names import Place, path_of
from holdfast.egress.outward import Outward
from holdfast.egress.placeholders import Placeholders
from holdfast.egress.rules import Rules
from holdfast.egress.scrub import Forms
from holdfast.errors import SecretUnavailable
from holdfast.facts.egress import EgressSeen
from holdfast.vault.base import Secret
from holdfast.vault.kept import ReferenceVault

VALUES_MAX = 16
"""Values of secrets, former ones among them, that are taken out of the answers of one host."""

_SLOW = ("keyring", "command")
"""Where a value may be long in coming; others are waited for without a thread, which would cost more than they do."""


class State:
    """Shared by all connections of one proxy."""

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
        self._used: dict[str, list[Secret]] = {}
        self._forms: dict[str, Forms] = {}
        self._lock = threading.Lock()
        self._noted = anyio.Event()

    def admit(self) -> None:
        """Count a request. Raises `Refusal` past the policy's cap."""
        if self.journal.requests >= self.rules.policy.requests_max:
            raise Refusal(429, "this session has made as many requests as its policy allows")
        self.check_bytes()
        self.journal.requests += 1

    def count(self, size: int) -> None:
        """Count bytes of either direction. Raises `Refusal` past the policy's cap."""
        self.journal.bytes += size
        self.check_bytes()

    def check_bytes(self) -> None:
        """Raise `Refusal` when the bytes of the policy are used up."""
        if self.journal.bytes > self.rules.policy.bytes_max:
            raise Refusal(429, "this session has moved as many bytes as its policy allows")

    def reads(self, place: Place) -> None:
        """Something of that place comes in: strangers may have written it, unless it is a registry."""
        self._strangers = self._strangers or not self.rules.is_registry(place)

    def is_held(self, name: str) -> bool:
        """Whether a person has to say yes before this secret is used."""
        return name in self.held or (self.wary and self._strangers)

    async def values(self, host: str, names: Sequence[str]) -> dict[str, Secret]:
        """The values of those secrets now, which are from now on taken out of what that host answers.

        Raises `Refusal` when one of them is not there.
        """
        found = {}
        for name in names:
            slow = name in self.vault.names() and self.vault.source(name).kind in _SLOW
            found[name] = await anyio.to_thread.run_sync(self._resolve, name) if slow else self._resolve(name)
            self._remember(host, found[name])
        return found

    def forms(self, host: str) -> Forms | None:
        """What is taken out of the answers of that host; None when no secret was ever sent there."""
        return self._forms.get(host)

    def _remember(self, host: str, secret: Secret) -> None:
        used = self._used.setdefault(host, [])
        if any(one.reveal() == secret.reveal() for one in used):
            return
        used.append(secret)
        del used[:-VALUES_MAX]
        self._forms[host] = Forms(used)

    def _resolve(self, name: str) -> Secret:
        with self._lock:
            try:
                return self.vault.resolve(name)
            except SecretUnavailable as error:
                told = f"the secret {name} is not available now; the people who run this session can see why"
                raise Refusal(502, str(error), secret=name, told=told) from None

    # --- notes ---

    async def noted(self) -> None:
        """Return when there is something to write."""
        await self._noted.wait()
        self._noted = anyio.Event()

    def allowed(self, place: Place, head: Head | None = None, *, sent: int = 0, received: int = 0, **more: str) -> None:
        """Note a request that was let through."""
        self._note("allowed", place, head, sent=sent, received=received, **more)

    def refused(self, place: Place, head: Head | None, refusal: Refusal) -> None:
        """Note one that was not."""
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
