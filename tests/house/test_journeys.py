"""How many modules a reader meets who follows a journey through the code: it must not grow."""

from __future__ import annotations

import json
import subprocess
import sys

MOST = {"goal to model request": 102, "bash call to result": 79, "hand-in to main branch": 109}
"""Modules of each journey as last measured, with two to spare: lower a number when the code gets better."""

TIMES = 3
"""How often the journeys are made. On a busy machine a poll or a heartbeat runs beside one of them now and then."""


def made() -> dict[str, list[str]]:
    """The journeys, made by a process of their own."""
    done = subprocess.run([sys.executable, "-m", "tests.house.journeys", "--json"], check=True, capture_output=True)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_journeys_do_not_grow_longer() -> None:
    first, *again = [made() for _ in range(TIMES)]
    journeys = {
        name: [module for module in modules if all(module in each[name] for each in again)]
        for name, modules in first.items()
    }
    assert {name: len(modules) for name, modules in journeys.items() if len(modules) > MOST[name]} == {}
    assert journeys["goal to model request"][0] == "holdfast.app.cli"
    assert "holdfast.brain.acts.hands" in journeys["bash call to result"]
    assert journeys["hand-in to main branch"][-1] == "holdfast.kinds.mission.acts.merging"
