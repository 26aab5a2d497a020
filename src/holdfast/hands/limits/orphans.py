"""Taking away the groups of supervisors that were killed: no process is left in them, only a name."""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.hands.box.group import RECORD, recorded
from holdfast.hands.box.kernel import is_locked


def clear(folder: Path) -> None:
    """Remove the groups of one incarnation whose supervisor is dead, and what is still in them."""
    record = folder / RECORD
    if is_locked(str(folder / "lock")):
        return
    group = recorded(str(record))
    if group.folders and group.remove():
        with contextlib.suppress(OSError):
            record.unlink()


def clear_all(folder: Path) -> int:
    """The same for every incarnation under `folder`; returns how many there were to look at."""
    found = []
    with contextlib.suppress(OSError):
        found = list(folder.glob(f"*/{RECORD}"))
    for record in found:
        with contextlib.suppress(OSError):
            clear(record.parent)
    return len(found)
