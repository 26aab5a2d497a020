"""Text of notices: for inbox items and for ended sessions, cut to the limits of a device.

Invisible characters are made visible, and a cut is marked.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.clock import rfc3339
from holdfast.facts.people import ApprovalRequested
from holdfast.notify.base import Notice, NoticeKind, notice_id
from holdfast.session.context.text import visible
from holdfast.session.money import usd

Round = Literal["first", "reminder", "second"]
"""Rounds of notices for one item, named as in `notice.sent`."""

_KINDS: dict[Round, NoticeKind] = {"first": "approval", "reminder": "reminder", "second": "escalation"}
_OPENINGS: dict[Round, str] = {"first": "", "reminder": "Still waiting: ", "second": "No answer yet: "}


def item_notice(
    request: ApprovalRequested,
    *,
    target: str,
    round: Round,
    session_id: str,
    at_us: int,
    session_name: str = "",
    count: int = 1,
) -> Notice:
    """Make the notice of an inbox item for one target. `count` numbers its reminders."""
    return Notice(
        notice_id=notice_id(session_id, target, request.item_id, round, str(count)),
        kind=_KINDS[round],
        session_id=session_id,
        session_name=session_name,
        item_id=request.item_id,
        title=f"{_OPENINGS[round]}{request.title}",
        body=_item_body(request, session_name or session_id),
        action_digest="" if request.needs_words else request.action_digest,  # a button has no words
        expires_us=request.expires_us,
        at_us=at_us,
        commands=(
            f"holdfast answer {request.item_id} 'your words'"
            if request.needs_words
            else f"holdfast approve {request.item_id}",
            f"holdfast deny {request.item_id}",
        ),
    )


def _item_body(request: ApprovalRequested, session: str) -> str:
    """Return the text of an item, with the action first, since a cut removes the end."""
    lines = [request.action]
    if request.options:
        lines.append("Proposed answers: " + "; ".join(request.options))
    if request.why:
        lines.append(f"Why: {request.why}")
    if request.touches:
        lines.append(f"Reaches: {request.touches}")
    if request.proposed_pico is not None:
        lines.append(f"Proposed cap: {usd(request.proposed_pico)}")
    cost = "" if request.cost_pico is None else f", {usd(request.cost_pico)} of its own so far"
    lines.append(f"Session: {session}{cost}")
    lines.append(_expiry(request))
    return "\n".join(lines)


def _expiry(request: ApprovalRequested) -> str:
    if request.expires_us is None or request.default is None:
        return "Without an answer it waits."
    done = "approved" if request.default == "approve" else "denied"
    until = rfc3339(request.expires_us)[:16].replace("T", " ")
    return f"Without an answer until {until} UTC it counts as {done}."


class Shown(NamedTuple):
    """A text that fits; `whole` is False if it was cut."""

    text: str
    whole: bool


def one_line(text: str, limit_bytes: int) -> str:
    """Format a title: visible, on one line, cut to `limit_bytes` of UTF-8."""
    line = " ".join(visible(text).split())
    if len(line.encode()) <= limit_bytes:
        return line
    return _head(line, limit_bytes - 3) + "…"


def message(notice: Notice, limit_bytes: int) -> Shown:
    """Format body and commands in at most `limit_bytes` of UTF-8.

    A cut is marked with the command that shows the full text. The commands come last and are never cut, because the
    reader of a cut message needs them most.
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
    """Return the command that shows the full item or session."""
    return "holdfast inbox" if notice.item_id else f"holdfast show {notice.session_id}"


def _head(text: str, limit_bytes: int) -> str:
    return text.encode()[: max(limit_bytes, 0)].decode(errors="ignore").rstrip()
