"""A clock that a test moves: wall and monotonic time apart, so that it can jump and the machine can sleep."""

from __future__ import annotations

import anyio
import anyio.lowlevel

HOUR_S = 3_600.0
BEGIN_US = 1_800_000_000_000_000


class ManualClock:
    """Time stands still until it is moved."""

    def __init__(self) -> None:
        self.wall_us = BEGIN_US
        self.mono_s = 50_000.0
        self._sleepers: list[tuple[float, anyio.Event]] = []

    def now_us(self) -> int:
        """Wall time."""
        return self.wall_us

    def monotonic_s(self) -> float:
        """Monotonic time."""
        return self.mono_s

    async def sleep(self, seconds: float) -> None:
        """Return once the monotonic time has passed."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        sleeper = (self.mono_s + seconds, event)
        self._sleepers.append(sleeper)
        try:
            await event.wait()
        finally:
            self._sleepers.remove(sleeper)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; or, forward, the machine was suspended: nothing that sleeps has moved."""
        self.wall_us += round(seconds * 1_000_000)

    async def pass_(self, seconds: float) -> None:
        """Time passes, and everything that it wakes does what it has to, in order."""
        until_s = self.mono_s + seconds
        await settle()
        while True:
            next_s = min((at_s for at_s, _ in self._sleepers), default=until_s)
            step_s = min(max(next_s, self.mono_s), until_s) - self.mono_s
            self.mono_s += step_s
            self.jump(step_s)
            for at_s, event in list(self._sleepers):
                if at_s <= self.mono_s + 1e-9:
                    event.set()
            await settle()
            if self.mono_s >= until_s:
                return


async def settle(rounds: int = 100) -> None:
    """Let every task go on until it waits for something that only the test can bring about."""
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()
