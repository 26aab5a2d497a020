"""Time limit for tests that wait for another process or task."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 150.0
"""Limit of any wait for another process or task, in seconds. It only ends a test that would hang forever: the machine
may be loaded, and no test may fail because it waited too briefly. Less than `faulthandler_timeout`."""


def until(condition: Callable[[], object]) -> None:
    """Look again and again until something holds that another process brings about."""
    end = time.monotonic() + PATIENCE_S  # not a number of looks: one of them may take long
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE_S:g} s in vain"
        threading.Event().wait(0.02)


def remove(folder: Path) -> None:
    """Remove a folder, in which processes that are about to end may still add and remove something."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_gone)
