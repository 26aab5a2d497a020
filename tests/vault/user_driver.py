"""The kit on the real vault, run in a process of its own; prints what failed."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from holdfast.testing.vault import CHECKS
from tests.vault.rigs import RIGS

KINDS = ("env", "file", "command")
"""Those that need no package."""


def main(base: Path) -> dict[str, str]:
    """Name → what went wrong, empty when nothing did."""
    found = {}
    for kind in KINDS:
        for name, check in CHECKS.items():
            folder = base / f"{kind}.{name}"
            folder.mkdir(0o700)
            try:
                check(RIGS[kind](folder))
                found[folder.name] = ""
            except Exception:
                found[folder.name] = traceback.format_exc()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
