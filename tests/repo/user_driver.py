"""The kit and the attacks on the real shelf, run in a process of its own; prints what failed."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable
from pathlib import Path

import anyio

from holdfast.testing.repo import CHECKS
from tests.repo.attacks import ATTACKS, Ground
from tests.repo.rigs import ShadowRig


async def problem(step: Awaitable[None]) -> str:
    """What went wrong; empty when nothing did."""
    try:
        await step
    except Exception:
        return traceback.format_exc()
    return ""


async def main(base: Path) -> dict[str, str]:
    """Name → what went wrong."""
    found = {}
    for name, check in CHECKS.items():
        (base / name).mkdir()
        found[name] = await problem(check(ShadowRig(base / name)))
    for name, attack in ATTACKS.items():
        (base / name).mkdir()
        found[name] = await problem(attack(Ground(base / name)))
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
