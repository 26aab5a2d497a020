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
    """Look again and again until something holds that another process brings about.

    Looks take at most half of the time: one that runs a command would take the processor from what is waited for.
    """
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < began + PATIENCE_S, f"waited {PATIENCE_S:g} s in vain"
        threading.Event().wait(max(0.02, now - looked))
        looked = time.monotonic()


def remove(folder: Path) -> None:
    """Remove a folder, in which processes that are about to end may still add and remove something."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_gone)
