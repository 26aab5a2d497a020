"""What a call printed and how it ended, in words for the model."""

from __future__ import annotations

from holdfast.hands.base import ExecResult


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
        notes.append(f"it reached the limit of {result.limit}")
    return notes
