"""The status of a real proxy, as whoever runs this: prints it as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from holdfast.egress.control import places
from holdfast.privileges import status
from holdfast.testing.egress import SECRETS, variable_of
from tests.egress.rigs import ProxyRig, proxy_rig
from tests.egress.scene import ONE, SECRET, SES, pid_of


def proxy_of(rig: ProxyRig) -> int:
    """The child of the keeper."""
    keeper = pid_of(rig)
    (child,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return int(child)


async def seen(folder: Path) -> dict[str, str]:
    """The status of a proxy that has just answered a request with a secret in it."""
    async with proxy_rig(folder) as rig:
        gateway = await rig.egress.open(SES, SECRET, uid=os.getuid())
        placeholder = gateway.env[variable_of(SECRETS[0])]
        assert await rig.request(gateway, ONE, placeholder) == "allowed"
        found = status(proxy_of(rig))
        assert (await rig.egress.notes(SES, 0)).seen[0].verdict == "allowed", "it wrote its journal"
        found["files"] = str(places(rig.folder, SES).journal.stat().st_uid)
    return found


def main() -> None:
    """As a program of its own."""
    print(json.dumps(anyio.run(seen, Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
