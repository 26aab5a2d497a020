"""Words of a notice as a person's device shows them: nothing hidden, no longer than it takes, cut visibly."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.notify.base import Notice
from holdfast.session.context.visible import visible


class Shown(NamedTuple):
    """A text that fits, and whether it is all of it."""

    text: str
    whole: bool


def one_line(text: str, limit_bytes: int) -> str:
    """A title: visible, on one line, cut to `limit_bytes` of UTF-8."""
    line = " ".join(visible(text).split())
    if len(line.encode()) <= limit_bytes:
        return line
    return _head(line, limit_bytes - 3) + "…"


def message(notice: Notice, limit_bytes: int) -> Shown:
    """The body and the commands in at most `limit_bytes` of UTF-8.

    The end says so when something is missing, and how to see the whole. The commands come last and whole:
    whoever reads a cut message needs them most.
    """
    body = visible(notice.body).strip()
    commands = visible("\n".join(notice.commands))
    text = f"{body}\n\n{commands}" if commands else body
    if len(text.encode()) <= limit_bytes:
        return Shown(text, True)
    tail = f"\n[cut here; the whole: {whole_command(notice)}]"
    rest = f"\n\n{commands}" if commands else ""
    room = limit_bytes - len((tail + rest).encode())
    if room < 0:
        return Shown(_head(tail.strip(), limit_bytes), False)
    return Shown(_head(body, room) + tail + rest, False)


def whole_command(notice: Notice) -> str:
    """What to type to see everything about it."""
    return "holdfast inbox" if notice.item_id else f"holdfast show {notice.session_id}"


def _head(text: str, limit_bytes: int) -> str:
    return text.encode()[: max(limit_bytes, 0)].decode(errors="ignore").rstrip()
