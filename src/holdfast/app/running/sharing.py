"""The part of a home's due sessions that one of its workers serves."""

from __future__ import annotations

from functools import partial

from holdfast.app.compose import Runtime
from holdfast.app.serving import workers
from holdfast.app.settings.config import database_path
from holdfast.clock import SystemClock
from holdfast.fleet.serve import Share


def share_of(runtime: Runtime) -> Share:
    """The place of this worker among those that serve the same log."""
    living = partial(workers, runtime.home, database_path(runtime.settings))
    return Share(runtime.worker.worker_id, living, SystemClock())
