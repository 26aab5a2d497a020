"""What the command line returns for each way a session can stand (CLI reference, exit status)."""

from __future__ import annotations

from holdfast.session.rows import SessionRow

DONE = 0
FAILED = 1
USAGE = 2
NEEDS_PERSON = 3
LIMIT = 4
UNABLE = 5
DAMAGED = 6
INTERRUPTED = 130


def exit_code(status: str, reason: str) -> int:
    """The exit status for a session's status and, when parked, the reason."""
    if status == "done":
        return DONE
    if status == "parked":
        return NEEDS_PERSON if reason == "person" else LIMIT
    if status in ("failed", "cancelled"):
        return FAILED
    return INTERRUPTED


def next_step(row: SessionRow) -> str:
    """What a person can type next, as a sentence; empty when there is nothing to do."""
    name = row.session_id
    match row.status, row.reason:
        case "parked", "person":
            return f"Answer with `holdfast send {name} TEXT`; it goes on with `holdfast wake {name}`."
        case "parked", "budget":
            return f"Raise the cap: `holdfast run --session-id {row.key or name} --budget USD`."
        case "parked", "cap":
            return f"Raise the cap: `holdfast run --session-id {row.key or name} --max-turns N`."
        case "parked", "context":
            return "Its context is full; a new session on the same workspace can go on from the files."
        case "parked", _:
            return f"It can go on later: `holdfast wake {name}`."
        case "runnable", _:
            return f"It is intact; go on with `holdfast wake {name}`."
        case _:
            return ""
