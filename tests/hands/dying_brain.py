"""A process that starts a call, says whose hands have it, and waits to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec

from holdfast.clock import SystemClock
from holdfast.facts.session import Workspace
from holdfast.hands.base import HandsSpec
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.launch import Lives
from holdfast.hands.supervised import SupervisedHands
from holdfast.ids import new_hands_id, system_entropy
from holdfast.testing.hands import bash, job
from tests.hands.rigs import REAL

COMMAND = "printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; echo done"


async def main(provider: str, folder: Path, workspace: str, tool: str = "bash") -> None:
    """Until killed. `tool` is bash or job."""
    hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
    spec = HandsSpec("ses_kit", hands_id, Workspace(workspace, disposable=True))
    hands = await REAL[provider](folder).provision(spec, 1)
    await hands.start(1, "1.0", job(COMMAND) if tool == "job" else bash(COMMAND))
    sys.stdout.buffer.write(msgspec.json.encode(hands.identity))
    sys.stdout.flush()
    await anyio.sleep_forever()


async def unclaimed(folder: Path, workspace: str) -> None:
    """Make hands, and be killed before anybody could be told of them."""

    async def stay(hands: SupervisedHands, epoch: int) -> None:
        journal = folder / hands.identity.hands_id / "journal"
        sys.stdout.write(f"{replay(str(journal)).opened['pid']}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()

    SupervisedHands.claim = stay  # type: ignore[method-assign, assignment]
    spec = HandsSpec("ses_kit", "hnd_unclaimed", Workspace(workspace, disposable=True))
    await BubblewrapProvider(folder, lives=Lives(claim_s=0.1)).provision(spec, 1)


if __name__ == "__main__":
    if sys.argv[1] == "unclaimed":
        anyio.run(unclaimed, Path(sys.argv[2]), sys.argv[3])
    else:
        anyio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3], "job" if sys.argv[4:] == ["job"] else "bash")
