"""What a shift knows of the hooks of its project, beside the log: read once, and forgotten with the shift."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from holdfast.mission.hooks import Settings


class Hooked:
    """The hooks of a worker. `scripts` are files, by path, that are put back before any of them runs; of them,
    `programs` can be executed. `guarded` says that some could not be written, so that each is looked at first.

    `losses` counts by call the hands that went while its hooks ran. Those of calls that run side by side take turns.
    """

    def __init__(self, settings: Settings, scripts: Mapping[str, bytes], programs: frozenset[str]) -> None:
        self.hooks = settings.hooks
        self.problems = settings.problems
        self.scripts = scripts
        self.programs = programs
        self.guarded = False
        self.losses: dict[str, int] = {}
        self.starting = anyio.Lock()
        self.turn = anyio.Lock()
