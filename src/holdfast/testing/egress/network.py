"""A network of one's own for a proxy under test: names lead to addresses, and addresses to sockets of this machine.

The proxy judges the addresses as they are told; only then they are replaced. So a server on loopback can stand for one
that is anywhere.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.egress import proxy_process
from holdfast.egress.proxy import Part
from holdfast.egress.upstream import SystemNetwork


class Tables(msgspec.Struct, frozen=True):
    """What stands in the file."""

    names: dict[str, list[list[str]]]
    routes: dict[str, tuple[str, int]]


class TableNetwork:
    """Reads its tables from a JSON file anew each time, so that a test can change them.

    `names` maps a host to a list of answers, which are given in turn; the last one stays. `routes` maps
    `address port` to where that really is. What is in neither is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked: dict[str, int] = {}
        self._system = SystemNetwork()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The next answer of that name. Raises `OSError`."""
        answers = self._tables().names.get(host)
        if not answers:
            raise OSError("no such name")
        turn = self._asked[host] = self._asked.get(host, 0) + 1
        return answers[min(turn, len(answers)) - 1]

    async def connect(self, address: str, port: int) -> socket.socket:
        """A connection to what stands for that address. Raises `OSError`."""
        route = self._tables().routes.get(f"{address} {port}")
        if route is None:
            raise OSError("no such address")
        return await self._system.connect(*route)

    def _tables(self) -> Tables:
        return msgspec.json.decode(self._path.read_bytes(), type=Tables)


def main() -> None:
    """The program of a proxy on such a network."""
    proxy_process.main(lambda path: TableNetwork(Path(path)))


def part(path: Path) -> Part:
    """What a `ProxyEgress` is given to use such a network."""
    return Part(__name__, str(path))
