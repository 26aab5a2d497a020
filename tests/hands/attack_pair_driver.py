"""Two sessions' sandboxes side by side, each trying to get at what the other planted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from holdfast.hands.base import Hands, Network
from holdfast.hands.box.processes import descendants
from holdfast.testing.hands import bash, job, run
from tests.hands.attack_driver import BRIDGE, LIMITED, Host, put_scripts, verdicts
from tests.hands.rigs import RealRig, bubblewrap, real
from tests.support.waiting import PATIENCE_S

SCRIPTS = ("attack_tools", "attacks_pair")


class _Side:
    """One session: its rig, its host's canaries, its hands."""

    def __init__(self, name: str, rig: RealRig, host: Host) -> None:
        self.mark = f"canary-{name}-{os.getpid()}"
        self.rig = rig
        self.host = host
        self.hands: Hands
        self.told: dict[str, Any] = {}

    async def begin(self) -> None:
        """Make hands, and plant."""
        put_scripts(self.rig.workspace, {**self.host.canaries, "canary": self.mark}, SCRIPTS)
        network = Network(self.host.canaries["door"], BRIDGE)
        spec = self.rig.spec(env={"MARK": self.mark}, network=network, policy=LIMITED)
        self.hands = await self.rig.provider.provision(spec, 1)
        plant = job("/usr/bin/python3 -m tests.hands.attacks_pair plant", 120.0, line="^ready")
        await self.hands.start(1, "1.0", plant)
        status = await self.hands.status(1, "1.0", wait_s=PATIENCE_S)
        assert status.line is not None, status
        self.told = json.loads(status.line.partition(" ")[2])

    def peer(self) -> dict[str, Any]:
        """What the other is told: more than it could ever find out."""
        folder = self.rig.folder / self.hands.identity.hands_id
        return {
            "mark": self.mark,
            "port": self.told["port"],
            "files": [str(self.rig.workspace / "mark"), str(folder / "output" / "mark"), str(folder / "journal")],
            "folders": [str(self.rig.workspace), str(folder), str(folder / "output"), str(self.rig.folder)],
            "sockets": [
                str(self.rig.workspace / "meet"),
                self.hands.identity.address,
                self.host.canaries["door"],
            ],
            "door": self.host.canaries["door"],
        }

    def groups(self) -> set[str]:
        """The control groups that its processes are in."""
        out = set()
        for entry in descendants(self.rig.supervisor(self.hands)):
            lines = Path(f"/proc/{entry.pid}/cgroup").read_text().splitlines()
            out |= {line for line in lines if "holdfast-" in line}
        return out


async def both(base: Path) -> dict[str, str]:
    """Attempt → verdict, of each session on the other."""
    found: dict[str, str] = {}
    for name in ("a", "b"):
        (base / name).mkdir(mode=0o755)
        (base / name).chmod(0o755)
    async with real(base / "a", bubblewrap) as first, real(base / "b", bubblewrap) as second:
        with Host(base / "a", "a") as one, Host(base / "b", "b") as two:
            sides = (_Side("a", first, one), _Side("b", second, two))
            for side in sides:
                await side.begin()
            for side, other in (sides, sides[::-1]):
                (side.rig.workspace / "peer.json").write_text(json.dumps(other.peer()))
                tried = await run(side.hands, "2.0", bash("/usr/bin/python3 -m tests.hands.attacks_pair try", 60.0))
                found |= {f"{attempt} ({side.mark})": said for attempt, said in verdicts(tried).items()}
            found["70 groups"] = f"LEAK {both}" if (both := sides[0].groups() & sides[1].groups()) else "blocked"
            found["__uids"] = ",".join(str(side.hands.identity.uid) for side in sides)
            found["__segments"] = ",".join(str(side.told["segment"]) for side in sides)
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(both, Path(sys.argv[1]))))
