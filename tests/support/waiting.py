"""Time limit for tests that wait for another process or task."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 150.0
"""Limit of any wait for another process or task, in seconds. It only ends a test that would hang forever: the machine
may be loaded, and no test may fail because it waited too briefly. Less than `faulthandler_timeout`."""


def until(condition: Callable[[], object]) -> None:
    """Look again and again until something holds that another process brings about."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("waited in vain")
