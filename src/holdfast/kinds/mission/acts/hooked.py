"""The memory of a role's shift beside the log: hooks that were read, and commits. It is forgotten with the shift."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from holdfast.brain.shift import Acts, Shift
from holdfast.kinds.mission.role.hooks import Settings


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


class Working(Acts):
    """A role at work. `hooks` are those of its project, once they were read; `handed` is a commit of its tree as it was
    before they ran at its hand-in. `uncommitted` is one more than the change that could not be committed, 0 for none.
    """

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.hooks: Hooked | None = None
        self.handed = ""
        self.uncommitted = 0


def working(shift: Shift) -> Working:
    """The memory of a role's shift."""
    assert isinstance(shift.acts, Working)
    return shift.acts
