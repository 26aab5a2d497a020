"""The way outside in memory as a rig of the conformance kit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.egress.base import Gateway
from holdfast.egress.fake import FakeEgress
from holdfast.testing.egress import Answer, Place


class FakeRig:
    """Two servers that are only names."""

    places = (Place("one.test", 443), Place("two.test", 443))
    values = ("canary-alpha", "canary-beta")
    uid = 1000

    def __init__(self) -> None:
        self.egress = FakeEgress()

    async def request(self, gateway: Gateway, place: Place, placeholder: str = "") -> Answer:
        """As a program inside would make it."""
        session_id = gateway.socket.split("/")[2]
        mark = f"placeholder-{session_id}-"
        secret = placeholder.removeprefix(mark) if placeholder.startswith(mark) else placeholder
        try:
            return self.egress.request(session_id, place.host, port=place.port, secret=secret)
        except ConnectionError:
            return "unreachable"


@asynccontextmanager
async def fake_rig() -> AsyncIterator[FakeRig]:
    """A fresh one."""
    yield FakeRig()
