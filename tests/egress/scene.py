"""One session with a way outside, and hands inside that use it."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from holdfast.egress.control import is_locked, places, reach
from holdfast.facts.session import EgressPolicy
from holdfast.hands.base import Hands, Network
from holdfast.hands.user import choose_user
from holdfast.testing.egress import SECRETS, Place, at, use_of
from holdfast.testing.hands import bash, run
from tests.egress.rigs import ProxyRig
from tests.hands.rigs import bubblewrap, real
from tests.support.waiting import PATIENCE_S

SES = "ses_lives"
ONE = Place("one.test", 443)
TWO = Place("two.test", 443)
SECRET = EgressPolicy(allow=(at(ONE),), secrets=(use_of(SECRETS[0], ONE),))


def pid_of(rig: ProxyRig, session_id: str = SES) -> int:
    """The kernel says who listens there."""
    with reach(places(rig.folder, session_id).control) as sock:
        return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


async def gone(rig: ProxyRig, session_id: str = SES) -> None:
    """Wait until no proxy of that session lives."""
    with anyio.fail_after(PATIENCE_S):
        while is_locked(places(rig.folder, session_id).lock):  # noqa: ASYNC110 - another process ends
            await anyio.sleep(0.01)


@asynccontextmanager
async def inside(tmp_path: Path, rig: ProxyRig, policy: EgressPolicy) -> AsyncIterator[tuple[Hands, int]]:
    """Hands in a sandbox with a way outside, and their user."""
    async with real(tmp_path, bubblewrap) as hands_rig:
        spec = hands_rig.spec()
        uid = choose_user(spec.workspace).uid
        gateway = await rig.egress.open(SES, policy, uid=uid)
        network = Network(gateway.socket, gateway.port, gateway.env, gateway.files)
        yield await hands_rig.provider.provision(msgspec.structs.replace(spec, network=network), 1), uid


CURL = 'curl -s -m 20 -o /dev/null -w "%{{http_code}}" -H "Authorization: Bearer $KIT_ALPHA" https://{}/'


async def code(hands: Hands, call: str, host: str = ONE.host) -> str:
    """What curl says of a request from inside."""
    return (await run(hands, call, bash(CURL.format(host), 30.0))).output.splitlines()[0][:3]
