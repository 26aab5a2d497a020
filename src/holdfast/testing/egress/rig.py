"""What a check needs of a way outside, and of what is at its other end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, Protocol

from holdfast.egress.base import Egress, Gateway
from holdfast.facts.session import Destination, SecretUse

Answer = Literal["allowed", "refused", "held", "unreachable"]
"""What a program inside saw: an answer from outside, a refusal of the proxy, one because a person has to say yes
first, or nobody at the socket.
"""

SECRETS = ("ALPHA", "BETA")
"""Names of the secrets that the rig's vault has."""


class Place(NamedTuple):
    """A server outside that answers every request over TLS."""

    host: str
    port: int


class Rig(Protocol):
    """A way outside under test with two servers at its other end."""

    @property
    def egress(self) -> Egress:
        """What is tested, with the secrets of `SECRETS` in its vault."""
        ...

    @property
    def uid(self) -> int:
        """The user that `request` connects as."""
        ...

    @property
    def places(self) -> tuple[Place, Place]:
        """Two servers, of different names."""
        ...

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the secrets: they must not be told."""
        ...

    async def request(self, gateway: Gateway, place: Place, placeholder: str = "") -> Answer:
        """GET `/` there through the gateway, with the placeholder as a bearer in `authorization`."""
        ...


Check = Callable[[Rig], Awaitable[None]]


def variable_of(name: str) -> str:
    """The environment variable that has the placeholder of a secret."""
    return f"KIT_{name}"


def use_of(name: str, place: Place) -> SecretUse:
    """A secret bound to a place."""
    return SecretUse(name, (place.host,), variable=variable_of(name))


def at(place: Place) -> Destination:
    """A place as a policy lists it. `private`, since the rig's servers are near."""
    return Destination(place.host, (place.port,), private=True)
