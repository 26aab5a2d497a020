"""How long a test waits for something that has to happen."""

from __future__ import annotations

PATIENCE_S = 150.0
"""The limit of any wait for another process or task. It only ends a test that would hang for ever: machines that run
the tests may be loaded, and no test may fail because it waited too little. Below `faulthandler_timeout`."""
