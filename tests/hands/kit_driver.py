"""Runs the whole kit on one real provider and prints what failed: for a process of another user."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import anyio

from holdfast.testing.hands import CHECKS, NEWS
from tests.hands.rigs import REAL, real


async def main(base: Path, provider: str) -> dict[str, str]:
    """Check → what went wrong, empty when nothing did."""
    out: dict[str, str] = {}
    for number, (name, check) in enumerate({**CHECKS, **NEWS}.items()):
        folder = base / str(number)
        folder.mkdir()
        try:
            async with real(folder, REAL[provider]) as rig:
                await check(rig)
            out[name] = ""
        except Exception:
            out[name] = traceback.format_exc()
    return out


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]), sys.argv[2])))
