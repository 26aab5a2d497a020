"""A process that holds values of secrets leaves no picture of its memory behind."""

from __future__ import annotations

import resource


def without_core_dumps() -> None:
    """From now on a crash of this process, or of one that it starts, writes no core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
