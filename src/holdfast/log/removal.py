"""Removal of sessions from a log: the events that go, and the spend that shared accounts carry on.

The home's log records each removal, in the same transaction, so that the watermark, anchors, and sums of money can tell
a removed session from a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.codec import decode_body, genesis
from holdfast.facts.shift import BudgetSet, CarriedAccount, RemovedSession, SessionsRemoved, SpendBucket
from holdfast.log.chain import StoredEvent, events_of
from holdfast.log.verify import Look, Rebuilt
from holdfast.session.home import HOME
from holdfast.session.money import AccountRow
from holdfast.session.rows import SessionRow


class Gone(msgspec.Struct, frozen=True):
    """Sessions to remove, as read: what they `spent` on accounts that stay, and reservations `held` by their events.

    `closed` are their own accounts, which go with them. `home_head` is the head of the home's log at that moment.
    """

    rows: tuple[SessionRow, ...]
    spent: tuple[AccountRow, ...]
    held: dict[tuple[str, int], int]
    closed: frozenset[str]
    home_head: int


def read_gone(look: Look, rows: Sequence[SessionRow]) -> Gone:
    """Verify the sessions and add up what goes with them. Raises `LogDamaged`, or `UsageError` for an erased body."""
    rebuilt = Rebuilt()
    for row in rows:
        rebuilt.session(row.session_id, look.stored(row.session_id), look.blob, look)
    if rebuilt.partly:
        raise UsageError(
            f"session {min(rebuilt.partly)} has erased events, so its spend on shared accounts is unknown; nothing was "
            "removed: keep it, since shared caps count it"
        )
    home = look.known(HOME)
    told = events_of(HOME, look.stored(HOME), look.blob, prev=genesis(HOME)) if home is not None else []
    named = {event.fact.account_id for event in told if isinstance(event.fact, BudgetSet)}
    closed = frozenset({row.session_id for row in rows} - named)
    spent = tuple(account for name, account in rebuilt.books.accounts().items() if name not in closed)
    return Gone(tuple(rows), spent, dict(rebuilt.books.held), closed, home.head if home is not None else 0)


def fact_of(gone: Gone, now: Iterable[AccountRow]) -> SessionsRemoved:
    """Return the record of a removal. `now` are the accounts that stay, as they are stored."""
    caps = {account.account_id: account for account in now}
    return SessionsRemoved(
        sessions=tuple(RemovedSession(row.session_id, row.head, row.head_hash.hex()) for row in gone.rows),
        accounts=tuple(
            CarriedAccount(
                account_id=each.account_id,
                spent_pico=each.spent_pico,
                fine=tuple(SpendBucket(*bucket) for bucket in each.spend.fine),
                hours=tuple(SpendBucket(*bucket) for bucket in each.spend.hours),
                cap_pico=caps[each.account_id].cap_pico,
                cap_day_pico=caps[each.account_id].cap_day_pico,
                cap_week_pico=caps[each.account_id].cap_week_pico,
                caps_us=caps[each.account_id].caps_us,
            )
            for each in gone.spent
        ),
    )


def removed_sessions(look: Look) -> dict[str, RemovedSession]:
    """Return the sessions that were removed from this log, by id."""
    found: dict[str, RemovedSession] = {}
    for stored in look.stored(HOME) if look.known(HOME) is not None else ():
        fact = _removal(stored, look)
        found |= {each.session_id: each for each in fact.sessions} if fact is not None else {}
    return found


def _removal(stored: StoredEvent, look: Look) -> SessionsRemoved | None:
    _, _, _, type_, _, body, digest = stored
    if type_ != "sessions.removed":
        return None
    whole = body if body is not None else look.blob(digest or b"").body
    fact = decode_body(whole, type_)[2] if whole is not None else None
    return fact if isinstance(fact, SessionsRemoved) else None
