"""Sessions over the API: list, get, create, and steer."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import msgspec

from holdfast.errors import UsageError
from holdfast.serve.api.operations import Asked, Nothing, Operation
from holdfast.serve.bodies import ForkInfo, Receipt, SessionInfo, SessionPage, receipt, session_info
from holdfast.serve.forking import fork_at
from holdfast.serve.site import SessionWanted
from holdfast.service import filters
from holdfast.service.missions import lift, pause_any
from holdfast.service.sessions import Session, costs_of
from holdfast.session.rows import SessionRow

LISTED_MAX = 200
"""Sessions in a page."""

SCANNED_MAX = 2_000
"""Rows read for one page: with a filter that few pass, a page ends there, and its cursor goes on."""


class SessionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`filter` has the terms of `holdfast ps`, `after` is the cursor of a page."""

    filter: str = ""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)] = 50


async def listed(asked: Asked[SessionsQuery, Nothing]) -> SessionPage:
    """List sessions, newest first."""
    try:
        wanted = filters.parse(shlex.split(asked.query.filter))
    except ValueError as error:
        raise UsageError(f"the filter cannot be read: {error}") from error
    site, visitor, query = asked.site, asked.visitor, asked.query
    page = await filters.matching(
        *(site.store, wanted, site.clock.now_us()),
        after=query.after,
        limit=query.limit,
        most=SCANNED_MAX,
        keeps=site.keeps(visitor),
    )
    return SessionPage([session_info(each) for each in page.found], page.after or None)


async def got(asked: Asked[Nothing, Nothing]) -> SessionInfo:
    """Get a session."""
    return await _info(asked, await asked.session())


async def _info(asked: Asked[Nothing, Any], row: SessionRow) -> SessionInfo:
    running = row.session_id in await asked.site.store.holders()
    spent = await costs_of(asked.site.store, row)
    return session_info(Session(row, running, spent[row.session_id]))


async def created(asked: Asked[Nothing, SessionWanted]) -> SessionInfo:
    """Open a session; the server runs it. With a `key` already in use, the session of that key is returned."""
    row = await asked.site.opening(asked.visitor, asked.body)
    if not await asked.site.sees(asked.visitor, row):
        raise UsageError(f"the key {asked.body.key!r} is in use outside the project of your API key; choose another")
    return await _info(asked, row)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a user."""

    text: str


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a command, for the log."""

    reason: str = ""


async def sent(asked: Asked[Nothing, Message]) -> Receipt:
    """Send a message to a session; it is read at the next model request."""
    return receipt(await asked.intake.send(await asked.session(), asked.body.text, key=asked.key))


async def interrupted(asked: Asked[Nothing, Reason]) -> Receipt:
    """Interrupt an agent; it waits for a message."""
    row = await asked.session()
    if row.status != "runnable" and row.session_id not in await asked.site.store.holders():
        return Receipt(row.session_id, None)
    return receipt(await asked.intake.interrupt(row, asked.body.reason, asked.key))


async def paused(asked: Asked[Nothing, Reason]) -> Receipt:
    """Pause a session at its next safe boundary, a mission or a run over a list with all below it."""
    return receipt(await pause_any(asked.intake, await asked.session(), asked.body.reason, asked.key))


async def resumed(asked: Asked[Nothing, Nothing]) -> Receipt:
    """Let a session go on that is paused, a new fork, or ended by a failed request, as `holdfast wake` does."""
    row = await asked.session()
    done = await lift(asked.intake, row, await asked.site.folds.state(row.session_id), asked.key)
    return Receipt(row.session_id, None) if done is None else receipt(done)


async def cancelled(asked: Asked[Nothing, Reason]) -> Receipt:
    """Cancel a session for good, with all below it."""
    row = await asked.session()
    if row.status == "cancelled":
        return Receipt(row.session_id, None, duplicate=True)
    return receipt(await asked.intake.cancel(row, asked.body.reason, asked.key))


class ForkWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`at` is the position of the event to fork after. A `key` names the fork, and makes the request safe to repeat."""

    at: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    key: str = ""


async def forked(asked: Asked[Nothing, ForkWanted]) -> ForkInfo:
    """Fork a session after an event. The fork is paused until it receives a message or is resumed.

    With a `key` already in use, the fork of that key is returned; without a key, each request makes another fork.
    """
    done = await fork_at(asked.site, asked.visitor, await asked.session(), asked.body.at, asked.body.key)
    row, fact = done.row, done.fact
    return ForkInfo(
        row.session_id,
        row.key,
        fact.origin,
        fact.origin_seq,
        row.workspace,
        fact.snapshot_seq,
        list(fact.unkept),
        done.duplicate,
    )


OPERATIONS = (
    Operation("GET", "/sessions", listed, SessionPage, query=SessionsQuery),
    Operation("POST", "/sessions", created, SessionInfo, body=SessionWanted, role="operator"),
    Operation("GET", "/sessions/{session}", got, SessionInfo),
    Operation("POST", "/sessions/{session}/messages", sent, Receipt, body=Message, role="operator", takes_key=True),
    Operation("POST", "/sessions/{session}/fork", forked, ForkInfo, body=ForkWanted, role="operator"),
    *(
        Operation("POST", f"/sessions/{{session}}/{verb}", handler, Receipt, body=body, role="operator", takes_key=True)
        for verb, handler, body in (
            ("interrupt", interrupted, Reason),
            ("pause", paused, Reason),
            ("resume", resumed, Nothing),
            ("cancel", cancelled, Reason),
        )
    ),
)
