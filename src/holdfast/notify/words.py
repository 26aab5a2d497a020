"""What a notice says: of an item that waits for a person, and of a session that ended."""

from __future__ import annotations

from typing import Literal

from holdfast.clock import rfc3339
from holdfast.facts.people import ApprovalRequested
from holdfast.notify.base import Notice, NoticeKind, notice_id
from holdfast.session.money import usd

Round = Literal["first", "reminder", "second"]
"""As `notice.sent` names them."""

_KINDS: dict[Round, NoticeKind] = {"first": "approval", "reminder": "reminder", "second": "escalation"}
_OPENINGS: dict[Round, str] = {"first": "", "reminder": "Still waiting: ", "second": "Nobody has answered: "}


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
    """The notice of an item to one target. `count` tells the reminders of an item apart."""
    return Notice(
        notice_id=notice_id(session_id, target, request.item_id, round, str(count)),
        kind=_KINDS[round],
        session_id=session_id,
        session_name=session_name,
        item_id=request.item_id,
        title=f"{_OPENINGS[round]}{request.title}",
        body=_item_body(request, session_name or session_id),
        action_digest=request.action_digest,
        expires_us=request.expires_us,
        at_us=at_us,
        commands=(f"holdfast approve {request.item_id}", f"holdfast deny {request.item_id}"),
    )


def _item_body(request: ApprovalRequested, session: str) -> str:
    """The action comes first: a text that is cut loses its end."""
    lines = [request.action]
    if request.options:
        lines.append("Proposed answers: " + "; ".join(request.options))
    if request.why:
        lines.append(f"Why: {request.why}")
    if request.touches:
        lines.append(f"Reaches: {request.touches}")
    if request.proposed_pico is not None:
        lines.append(f"Proposed cap: {usd(request.proposed_pico)}")
    cost = "" if request.cost_pico is None else f", {usd(request.cost_pico)} so far"
    lines.append(f"Session: {session}{cost}")
    lines.append(_expiry(request))
    return "\n".join(lines)


def _expiry(request: ApprovalRequested) -> str:
    if request.expires_us is None or request.default is None:
        return "Without an answer it waits."
    done = "approved" if request.default == "approve" else "denied"
    until = rfc3339(request.expires_us)[:16].replace("T", " ")
    return f"Without an answer until {until} UTC it counts as {done}."


def end_notice(
    kind: Literal["finished", "failed"],
    summary: str,
    *,
    target: str,
    session_id: str,
    seq: int,
    at_us: int,
    session_name: str = "",
) -> Notice:
    """The notice that a session ended. `seq` is where: a session that goes on may end again."""
    return Notice(
        notice_id=notice_id(session_id, target, kind, str(seq)),
        kind=kind,
        session_id=session_id,
        session_name=session_name,
        title=f"{session_name or session_id} {'is done' if kind == 'finished' else 'failed'}",
        body=summary,
        at_us=at_us,
        commands=(f"holdfast show {session_id}",),
    )
