"""Conformance kit of egress implementations.

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each check on your implementation:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_egress(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

`holdfast.egress.fake` passes it too. Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.egress import proxy_process
from holdfast.egress.base import Egress, Gateway
from holdfast.egress.proxy import Part
from holdfast.egress.upstream import SystemNetwork
from holdfast.facts.session import Destination, EgressPolicy, SecretUse

Answer = Literal["allowed", "refused", "held", "unreachable"]
"""The result of a request from the sandbox: answered, refused by the proxy, held for approval, or no proxy listening.
"""

SECRETS = ("ALPHA", "BETA")
"""Names of the secrets in the rig's vault."""


class Place(NamedTuple):
    """A server outside the sandbox that answers every request over TLS."""

    host: str
    port: int


class Rig(Protocol):
    """An egress implementation under test, with two servers to reach."""

    @property
    def egress(self) -> Egress:
        """The implementation under test, with the secrets of `SECRETS` in its vault."""
        ...

    @property
    def uid(self) -> int:
        """The user id that `request` connects with."""
        ...

    @property
    def places(self) -> tuple[Place, Place]:
        """Two servers with different names."""
        ...

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the secrets, which must not leak."""
        ...

    async def request(self, gateway: Gateway, place: Place, placeholder: str = "") -> Answer:
        """Send GET `/` through the gateway, with the placeholder as a bearer token."""
        ...


Check = Callable[[Rig], Awaitable[None]]


def variable_of(name: str) -> str:
    """The environment variable that holds a secret's placeholder."""
    return f"KIT_{name}"


def use_of(name: str, place: Place) -> SecretUse:
    """A secret bound to a place."""
    return SecretUse(name, (place.host,), variable=variable_of(name))


def at(place: Place) -> Destination:
    """The policy entry of a place; `private`, since the rig's servers are local."""
    return Destination(place.host, (place.port,), private=True)


class Tables(msgspec.Struct, frozen=True):
    """The content of the tables file."""

    names: dict[str, list[list[str]]]
    routes: dict[str, tuple[str, int]]


class TableNetwork:
    """A network for a proxy under test. It reads its tables from a JSON file each time, so that a test can change them.

    `names` maps a host to a list of answers, given in turn; the last one repeats. `routes` maps
    `address port` to the real address. Anything else does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked: dict[str, int] = {}
        self._system = SystemNetwork()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the next answer for the name. Raises `OSError`."""
        answers = self._tables().names.get(host)
        if not answers:
            raise OSError("no such name")
        turn = self._asked[host] = self._asked.get(host, 0) + 1
        return answers[min(turn, len(answers)) - 1]

    async def connect(self, address: str, port: int) -> socket.socket:
        """Connect to the real address. Raises `OSError`."""
        route = self._tables().routes.get(f"{address} {port}")
        if route is None:
            raise OSError("no such address")
        return await self._system.connect(*route)

    def _tables(self) -> Tables:
        return msgspec.json.decode(self._path.read_bytes(), type=Tables)


def main() -> None:
    """Run a proxy on a `TableNetwork`."""
    proxy_process.main(lambda path: TableNetwork(Path(path)))


def part(path: Path) -> Part:
    """The part that makes a `ProxyEgress` use a `TableNetwork`."""
    return Part(__name__, str(path))


ONE, OTHER = "ses_kit_one", "ses_kit_other"


async def unlisted_destinations_are_refused(rig: Rig) -> None:
    """Only the exact host and port in the policy are allowed."""
    first, second = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    assert await rig.request(gateway, first) == "allowed"
    assert await rig.request(gateway, second) == "refused"
    assert await rig.request(gateway, first._replace(port=first.port + 1)) == "refused"


async def opening_again_finds_the_living_one(rig: Rig) -> None:
    """Opening a session again returns the same proxy, with the latest policy."""
    first, second = rig.places
    before = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    again = await rig.egress.open(ONE, EgressPolicy(allow=(at(second),)), uid=rig.uid)
    assert (again.socket, again.port) == (before.socket, before.port)
    assert await rig.request(before, first) == "refused"
    assert await rig.request(before, second) == "allowed"


async def a_change_holds_at_once(rig: Rig) -> None:
    """A policy change applies to the next request, in both directions."""
    first, _ = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(), uid=rig.uid)
    assert await rig.request(gateway, first) == "refused"
    await rig.egress.change(ONE, EgressPolicy(allow=(at(first),)))
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.change(ONE, EgressPolicy())
    assert await rig.request(gateway, first) == "refused"


async def a_change_without_a_proxy_is_nothing(rig: Rig) -> None:
    """A change without a proxy neither fails nor starts one."""
    await rig.egress.change(ONE, EgressPolicy(allow=(at(rig.places[0]),)))
    assert (await rig.egress.notes(ONE, 0)).through == 0


async def secrets_are_held_one_by_one(rig: Rig) -> None:
    """A held secret is not used; another one is, and a request without secrets passes."""
    first, _ = rig.places
    alpha, beta = (use_of(name, first) for name in SECRETS)
    policy = EgressPolicy(allow=(at(first),), secrets=(alpha, beta))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid, held=(alpha.name,))
    assert await rig.request(gateway, first, gateway.env[variable_of(alpha.name)]) == "held"
    assert await rig.request(gateway, first, gateway.env[variable_of(beta.name)]) == "allowed"
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.change(ONE, policy, held=(beta.name,))
    assert await rig.request(gateway, first, gateway.env[variable_of(alpha.name)]) == "allowed"
    assert await rig.request(gateway, first, gateway.env[variable_of(beta.name)]) == "held"
    held = [seen for seen in (await rig.egress.notes(ONE, 0)).seen if seen.verdict == "held"]
    assert {seen.secret for seen in held} == set(SECRETS)
    assert all((seen.host, seen.port, seen.method) == (*first, "GET") for seen in held)


async def wary_holds_secrets_after_untrusted_content(rig: Rig) -> None:
    """With `wary`, secrets are held from the first response of an unlisted source until a change lifts it."""
    first, second = rig.places
    policy = EgressPolicy(allow=(at(second),), secrets=(use_of(SECRETS[0], first),))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid, wary=True)
    placeholder = gateway.env[variable_of(SECRETS[0])]
    assert await rig.request(gateway, second) == "allowed"
    assert await rig.request(gateway, first, placeholder) == "held"
    await rig.egress.change(ONE, policy, wary=True)
    assert await rig.request(gateway, first, placeholder) == "held"
    await rig.egress.change(ONE, policy)
    assert await rig.request(gateway, first, placeholder) == "allowed"


async def a_secret_goes_nowhere_else(rig: Rig) -> None:
    """A secret reaches only the host it is bound to, and its value never enters the sandbox."""
    first, second = rig.places
    policy = EgressPolicy(allow=(at(first), at(second)), secrets=tuple(use_of(name, first) for name in SECRETS))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid)
    placeholder = gateway.env[variable_of(SECRETS[0])]
    assert await rig.request(gateway, first, placeholder) == "allowed"
    assert await rig.request(gateway, second, placeholder) != "held"
    told = (*gateway.env.values(), *(body.decode("latin-1") for body in gateway.files.values()), repr(gateway))
    assert not any(value in text for value in rig.values for text in told)
    notes = repr(await rig.egress.notes(ONE, 0))
    assert not any(value in notes for value in rig.values)


async def notes_count_requests_by_verdict(rig: Rig) -> None:
    """Notes count each request once, and only those after the given position."""
    first, second = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    for _ in range(3):
        assert await rig.request(gateway, first) == "allowed"
    assert await rig.request(gateway, second) == "refused"
    notes = await rig.egress.notes(ONE, 0)
    counts = {
        (verdict, place): sum(
            seen.count for seen in notes.seen if seen.verdict == verdict and (seen.host, seen.port) == place
        )
        for verdict in ("allowed", "refused", "held")
        for place in rig.places
    }
    assert counts[("allowed", first)] == 3
    assert counts[("refused", second)] == 1
    assert sum(counts.values()) == 4
    assert all(seen.reason for seen in notes.seen if seen.verdict == "refused")
    after = await rig.egress.notes(ONE, notes.through)
    assert (after.through, after.seen) == (notes.through, ())
    await rig.request(gateway, second)
    later = await rig.egress.notes(ONE, notes.through)
    assert later.through > notes.through
    assert [(seen.verdict, seen.count) for seen in later.seen] == [("refused", 1)]


async def notes_outlive_the_proxy(rig: Rig) -> None:
    """Notes survive the proxy, continue with the next one, and go when the session is forgotten."""
    first, _ = rig.places
    policy = EgressPolicy(allow=(at(first),))
    gateway = await rig.egress.open(ONE, policy, uid=rig.uid)
    assert await rig.request(gateway, first) == "allowed"
    await rig.egress.close(ONE)
    before = await rig.egress.notes(ONE, 0)
    assert [(seen.verdict, seen.host) for seen in before.seen] == [("allowed", first.host)]
    assert await rig.request(await rig.egress.open(ONE, policy, uid=rig.uid), first) == "allowed"
    await rig.egress.close(ONE)  # requests in progress are recorded before it returns
    assert sum(seen.count for seen in (await rig.egress.notes(ONE, before.through)).seen) == 1
    await rig.egress.forget(ONE)
    assert (await rig.egress.notes(ONE, 0)).seen == ()


async def a_closed_proxy_answers_nothing(rig: Rig) -> None:
    """A closed proxy answers no requests, and closing twice is safe."""
    first, _ = rig.places
    gateway = await rig.egress.open(ONE, EgressPolicy(allow=(at(first),)), uid=rig.uid)
    await rig.egress.close(ONE)
    await rig.egress.close(ONE)
    assert await rig.request(gateway, first) == "unreachable"
    await rig.egress.forget(ONE)
    await rig.egress.forget(ONE)


async def sessions_share_nothing(rig: Rig) -> None:
    """Sessions share no policy, placeholder, or journal."""
    first, _ = rig.places
    policy = EgressPolicy(allow=(at(first),), secrets=(use_of(SECRETS[0], first),))
    mine = await rig.egress.open(ONE, policy, uid=rig.uid)
    other = await rig.egress.open(OTHER, EgressPolicy(), uid=rig.uid)
    assert mine.socket != other.socket
    assert await rig.request(mine, first) == "allowed"
    assert await rig.request(other, first) == "refused"
    await rig.egress.change(OTHER, policy)
    assert await rig.request(other, first, mine.env[variable_of(SECRETS[0])]) == "refused"
    await rig.egress.close(OTHER)
    assert await rig.request(mine, first) == "allowed"


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        unlisted_destinations_are_refused,
        opening_again_finds_the_living_one,
        a_change_holds_at_once,
        a_change_without_a_proxy_is_nothing,
        secrets_are_held_one_by_one,
        wary_holds_secrets_after_untrusted_content,
        a_secret_goes_nowhere_else,
        notes_count_requests_by_verdict,
        notes_outlive_the_proxy,
        a_closed_proxy_answers_nothing,
        sessions_share_nothing,
    )
}
"""Name → check."""

__all__ = ["CHECKS", "SECRETS", "Answer", "Check", "Place", "Rig", "use_of", "variable_of"]
