"""What a shift knows of the hooks of its project, beside the log: read once, and forgotten with the shift."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from holdfast.mission.hooks import Settings


class Hooked:
    """The hooks of a worker. `scripts` are files, by path, that are put back before any of them runs.

    `losses` counts by call the hands that went while its hooks ran.
    """

    def __init__(self, settings: Settings, scripts: Mapping[str, bytes]) -> None:
        self.hooks = settings.hooks
        self.problems = settings.problems
        self.scripts = scripts
        self.losses: dict[str, int] = {}
        self.starting = anyio.Lock()
