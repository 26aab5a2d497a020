"""A few deaths of each kind, for a process of another user: `python -m tests.faults.user_driver BASE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.faults import deaths
from tests.faults.boundaries import golden_run, killed_at
from tests.faults.brains import Nursery, nursery
from tests.faults.story import GOLDEN, open_session
from tests.faults.trials import WAYS, one_death
from tests.faults.victims import end_supervisors


def main(base: Path) -> dict[str, list[str]]:
    """Case → broken promises."""
    try:
        with nursery() as brains:
            return {**_boundaries(base, brains), **_moments(base, brains)}
    finally:
        end_supervisors(base)


def _boundaries(base: Path, brains: Nursery) -> dict[str, list[str]]:
    golden = golden_run(base / "golden", brains, sandbox=True)
    out = {}
    for boundary in golden.around("tool.dispatched", 3) + golden.around("hands.provisioned"):
        session = open_session(base / f"{boundary.nth}-{boundary.side}", GOLDEN)
        out[str(boundary)] = killed_at(session, brains, golden, boundary)
    return out


def _moments(base: Path, brains: Nursery) -> dict[str, list[str]]:
    calm = deaths.undisturbed(base / "calm", brains, sandbox=True)
    return {
        f"{way} {number}": one_death(base, brains, WAYS[way], calm, f"{way}-{number}", sandbox=True)
        for way in ("brain", "supervisor", "both")
        for number in range(2)
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
