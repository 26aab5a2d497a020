"""What a call printed and how it ended, in words for the model."""

from __future__ import annotations

from holdfast.hands.base import ExecResult

_LIMITS = {
    "memory": "ended for its memory: all that runs here together may use only so much; use less at a time",
    "processes": "ended for its processes: all that runs here together may be only so many; start fewer at a time",
    "disk": "ended for disk space: a file, or all that was added here, got too large; remove what is not needed",
    "inodes": "ended for the number of its files: too many were added here; remove what is not needed",
    "cpu": "ended for its processor time",
}


def content_of(result: ExecResult) -> str:
    """The output, then in brackets what the output cannot say."""
    lines = [result.output] if result.output else []
    return "\n".join(lines + [f"[{note}]" for note in _notes(result)]) or "[no output]"


def ending(result: ExecResult) -> str:
    """How a command ended, in a few words."""
    if result.cancelled:
        return "stopped"
    if result.timed_out:
        return "ended at its timeout"
    if result.limit:
        return f"ended at its limit of {result.limit}"
    if result.signal:
        return f"ended by signal {result.signal}"
    return f"exit status {result.exit_code or 0}"


def _notes(result: ExecResult) -> list[str]:
    notes = []
    if result.cancelled:
        notes.append("stopped by a person before it ended")
    if result.timed_out:
        notes.append("ended at its timeout")
    elif result.signal:
        notes.append(f"ended by signal {result.signal}")
    elif result.exit_code:
        notes.append(f"exit status {result.exit_code}")
    if result.truncated:
        where = f"; the whole output is in {result.output_path}" if result.output_path else ""
        notes.append(f"{result.bytes_total} bytes of output, the middle is left out{where}")
    if result.killed:
        notes.append(f"{result.killed} processes left behind were ended")
    if result.limit:
        notes.append(("a process of it was " if result.ok else "") + _LIMITS[result.limit])
    return notes
