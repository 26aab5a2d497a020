"""Supervisors: finding them by their journals, killing them, and keeping what they testify."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor.journal import Testimony, replay
from holdfast.hands.host import run_directory
from tests.faults.brains import wait_for


def supervisors(home: Path) -> dict[Path, int]:
    """Folder of hands → pid of its supervisor, for those that live."""
    out = {}
    for folder in home.glob("hands/hnd_*"):
        pid = replay(str(folder / "journal")).opened.get("pid")
        if pid is not None and is_locked(str(folder / "lock")):
            out[folder] = int(pid)
    return out


def signal_process(pid: int, number: int) -> bool:
    """Signal a process; False when it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def until_gone(folder: Path) -> None:
    """Wait until the supervisor of that folder has ended."""
    wait_for(lambda: not is_locked(str(folder / "lock")), f"the supervisor of {folder.name} ends")


def end_supervisors(base: Path) -> None:
    """Kill every supervisor under any home of `base`, and take its socket away."""
    for folder in base.rglob("hands"):
        for place, pid in supervisors(folder.parent).items():
            signal_process(pid, signal.SIGKILL)
            until_gone(place)
            (run_directory(os.getuid()) / f"{place.name}.sock").unlink(missing_ok=True)


class Witness:
    """An open journal: it can be read after its folder is gone."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "journal", os.O_RDWR)

    def says(self) -> Testimony:
        """What it says now."""
        return replay(f"/proc/self/fd/{self._fd}")

    def tear(self, line: bytes, offset: int) -> None:
        """Leave the beginning of a line where the dead supervisor was about to write it."""
        os.pwrite(self._fd, line, offset)

    def close(self) -> None:
        """Let it go."""
        os.close(self._fd)
