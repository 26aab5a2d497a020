"""The status of the processes beside a real sandbox, as whoever runs this: prints it as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from holdfast.facts.session import HandsPolicy
from holdfast.hands.box import processes
from holdfast.privileges import status
from holdfast.testing.hands import bash, run
from tests.hands.rigs import bubblewrap, real
from tests.support.child import command_of


def beside(parent: int) -> int:
    """The child of that process which is no sandbox."""
    for entry in processes.list_all().values():
        command = command_of(entry.pid) if entry.parent == parent else b""
        if command and b"bwrap" not in command:
            return entry.pid
    raise AssertionError(f"{parent} has no such child")


async def seen(base: Path) -> dict[str, dict[str, str]]:
    """What the kernel says of the supervisor, its steward and its watcher while they work."""
    async with real(base, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(policy=HandsPolicy(disk_bytes=1 << 30)), 1)
        assert (await run(hands, "1.0", bash("id -u"))).ok
        assert (await hands.read(1, "1.0")).text
        supervisor = rig.supervisor(hands)
        steward = beside(supervisor)
        pids = {"supervisor": supervisor, "steward": steward, "watcher": beside(steward)}
        return {name: {**status(pid), "hands": str(hands.identity.uid)} for name, pid in pids.items()}


if __name__ == "__main__":
    print(json.dumps(anyio.run(seen, Path(sys.argv[1]))))
