"""Time limit for tests that wait for another process or task."""

from __future__ import annotations

PATIENCE_S = 150.0
"""Limit of any wait for another process or task, in seconds. It only ends a test that would hang forever: the machine
may be loaded, and no test may fail because it waited too briefly. Less than `faulthandler_timeout`."""
