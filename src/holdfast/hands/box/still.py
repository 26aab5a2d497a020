"""Standing still: every process inside is stopped where it is, and later goes on.

By signals, and not by a freezer of control groups, so that it is the same on every machine and the agent can still be
told to end a call meanwhile. What had been stopped before by somebody else stays stopped.
"""

from __future__ import annotations

import os
import signal
import time

from holdfast.hands.box import tree

LIMIT_S = 5.0
"""How long it may take until no process is left that runs."""

STEP_S = 0.001
"""How long to wait for those that were told to stop and have not yet."""


class Still:
    """The processes that stand still. `since` is when that began, None while all goes on."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._held: dict[tuple[int, int], tree.Entry] = {}

    def begin(self, spare: frozenset[int]) -> bool:
        """Stop all descendants of this process but `spare`. False when new ones come faster than they are stopped."""
        if self.since is not None:
            return True
        self.since = time.monotonic()
        others: set[tuple[int, int]] = set()
        while True:
            found = tree.descendants(os.getpid(), spare)
            fresh = [
                entry
                for entry in found
                if (entry.pid, entry.start) not in self._held and (entry.pid, entry.start) not in others
            ]
            if not fresh:
                if all(entry.state in "Tt" for entry in found):
                    return True
                time.sleep(STEP_S)
            if time.monotonic() > self.since + LIMIT_S:
                self.end()
                return False
            for entry in fresh:
                if entry.state == "T":
                    others.add((entry.pid, entry.start))
                else:
                    tree.send(entry, signal.SIGSTOP)
                    self._held[entry.pid, entry.start] = entry

    def end(self) -> float:
        """Let them go on. Returns for how many seconds they stood still."""
        if self.since is None:
            return 0.0
        for entry in self._held.values():
            tree.send(entry, signal.SIGCONT)
        self._held.clear()
        seconds = time.monotonic() - self.since
        self.since = None
        return seconds

    def free(self, pid: int) -> None:
        """Let one of them go on already."""
        for key in [key for key in self._held if key[0] == pid]:
            tree.send(self._held.pop(key), signal.SIGCONT)
