"""A few checks of the kit on hands behind Landlock, for a process of another user."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from holdfast.hands.base import Provider
from holdfast.hands.landlock import LandlockProvider
from holdfast.testing.hands import CHECKS, bash, run
from tests.hands.rigs import LIVES, real

FEW = (
    "calls.a_call_id_runs_once",
    "calls.dead_hands_testify_by_their_journal",
    "calls.a_file_must_have_been_read_before_it_is_changed",
)


def landlock(folder: Path) -> Provider:
    """Hands that somebody accepted as weak."""
    return LandlockProvider(folder, accept_weak=True, lives=LIVES)


async def main(base: Path) -> dict[str, str]:
    """What the hands say of themselves, after the checks went well."""
    for number, name in enumerate(FEW):
        folder = base / str(number)
        folder.mkdir()
        async with real(folder, landlock) as rig:
            await CHECKS[name](rig)
    outside = base / "outside"
    outside.write_text("canary")
    async with real(base, landlock) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        said = await run(hands, "1.0", bash(f"cat {outside}; id -u"))
        return {"weak": hands.identity.weak, "said": said.output}


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
