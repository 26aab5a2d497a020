"""Full-text search of sessions: words of people and agents, tool calls, results, and file names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NoReturn, Protocol

import anyio.to_thread
import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LogFailed, UsageError
from holdfast.log.search.index import Excerpt, Lag, Match, SearchIndex, expression_of
from holdfast.log.verify import Source
from holdfast.service.filters import Filter, parse
from holdfast.service.sessions import Session, Store, costs_of
from holdfast.session.costs import Cost, Costs
from holdfast.session.rows import SessionRow

SHOWN = 3
"""Matching events shown of each session."""

RANKED, RANKED_FILTERED = 1_000, 2_000
"""Number of matching events, the latest ones, that are looked at: without a filter of sessions, and with one."""

CHECKED = 100
"""Number of sessions that are read and compared with a filter at a time."""

PHRASES_MAX = 32
"""Maximum number of words and phrases of a search."""

REST_S = 0.25
"""Time between two fills while the log changes, in seconds. Its lag is at most this and one fill."""

FAILED_REST_S = 300.0
"""Time after which a fill that failed is tried again, in seconds."""

GOAL_WEIGHT = 2.0
"""Weight of a match in a goal, compared with one in another event."""

NO_FILTER = Filter()

_TERM = re.compile(r'"([^"]*)(?:"|$)|([^\s"]+)')


class Log(Store, Source, Protocol):
    """The log as search needs it."""


class Query(msgspec.Struct, frozen=True):
    """A parsed search: a filter of sessions, and phrases with a flag for the start of a word."""

    filter: Filter
    phrases: tuple[tuple[str, bool], ...]


class Found(msgspec.Struct, frozen=True):
    """A matching event. `kind` says whose words match: a goal, a message, a tool call, a result."""

    seq: int
    kind: str
    at_us: int
    excerpt: Excerpt


class Hit(msgspec.Struct, frozen=True):
    """A session with matching events: its best ones, and the number of all."""

    session: Session
    events: tuple[Found, ...]
    count: int


class Page(msgspec.Struct, frozen=True):
    """A page of hits, best first. `more` is true if another page follows.

    `complete` is false if only the latest matching events were looked at. `lag` is that of the index after the search.
    """

    hits: tuple[Hit, ...]
    more: bool
    complete: bool
    lag: Lag


def parse_search(words: Iterable[str]) -> Query:
    """Parse what a user typed: filters, words, and phrases in double quotes, of which the last need not be closed.

    Raises `UsageError` for an invalid filter and for a search without words.
    """
    terms, phrases = list[str](), list[tuple[str, bool]]()
    for line in words:
        for quoted, term in _TERM.findall(line):
            if quoted:
                phrases.append((quoted, False))
            elif term:
                terms.append(term)
    try:
        wanted = parse(terms)
    except UsageError as error:
        raise UsageError(f"{error}. To search for such a word, write it in double quotes") from error
    phrases += [(word.rstrip("*"), word.endswith("*")) for word in wanted.words]
    # Nothing in the index matches text without a letter or a digit.
    phrases = [each for each in phrases if any(letter.isalnum() for letter in each[0])]
    if not phrases:
        raise UsageError(
            "a search needs a word with a letter or a digit; to list sessions by filters, use `holdfast ps`"
        )
    if len(phrases) > PHRASES_MAX:
        raise UsageError(f"a search has at most {PHRASES_MAX} words; this one has {len(phrases)}")
    clean = [(text.encode("utf-8", "replace").decode(), start) for text, start in phrases]
    return Query(msgspec.structs.replace(wanted, words=()), tuple(dict.fromkeys(clean)))


async def search(
    log: Log,
    index: SearchIndex,
    query: Query,
    now_us: int,
    *,
    after: str = "",
    limit: int | None = None,
    keeps: Callable[[SessionRow], Awaitable[bool]] | None = None,
) -> Page:
    """Return sessions with events that have all the words, best first, then the latest.

    A page starts after the session `after`, the last one of the previous page, and has at most `limit` sessions, of
    those that `keeps` accepts. Raises `UsageError` if the session `after` is no longer found.
    """
    expression = expression_of(query.phrases)
    filtered = query.filter != NO_FILTER or keeps is not None
    count = RANKED_FILTERED if filtered else RANKED
    matches = await anyio.to_thread.run_sync(index.matches, expression, count)
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.session_id, []).append(match)

    async def kept(some: Sequence[str]) -> dict[str, SessionRow]:
        passing = await _passing(log, query.filter, frozenset(some), now_us)
        return {each: passing[each] for each in some if each in passing and (not keeps or await keeps(passing[each]))}

    order = sorted(found, key=lambda each: min(map(_rank, found[each])))
    if after:
        session_id = (await log.find(after)).session_id
        if session_id not in order or not await kept([session_id]):
            raise UsageError(f"session {session_id} is no longer among the hits; start again with the first page")
        order = order[order.index(session_id) + 1 :]
    rows: dict[str, SessionRow] = {}
    for first in range(0, len(order), CHECKED):
        if limit is not None and len(rows) > limit:
            break
        rows |= await kept(order[first : first + CHECKED])
    page = list(rows)[:limit]
    holders, costs = await log.holders(), await costs_of(log, *(rows[each] for each in page))
    best = {each: sorted(found[each], key=_rank) for each in page}
    shown = [match for each in page for match in best[each][:SHOWN]]
    texts = await anyio.to_thread.run_sync(index.excerpts, expression, shown)

    def hit(session_id: str) -> Hit:
        events = tuple(
            Found(each.seq, each.kind, each.at_us, texts.get(each.document, Excerpt("")))
            for each in best[session_id][:SHOWN]
        )
        session = Session(rows[session_id], session_id in holders, costs[session_id])
        return Hit(session, events, len(best[session_id]))

    more = limit is not None and len(rows) > limit
    return Page(tuple(map(hit, page)), more, len(matches) < count, await log.look(index.lag))


def _rank(match: Match) -> tuple[float, int]:
    """The order of matching events: the best first, of equally good ones the latest."""
    return round(match.score * (GOAL_WEIGHT if match.kind == "goal" else 1.0), 3), -match.at_us


async def _passing(log: Log, wanted: Filter, session_ids: frozenset[str], now_us: int) -> dict[str, SessionRow]:
    """Return the rows of those sessions that exist and pass the filter."""
    if not session_ids:
        return {}
    holders = await log.holders()
    which = msgspec.structs.replace(wanted.which(now_us, holders), ids=session_ids)
    rows = await log.sessions(which)
    priced = wanted.over_pico is not None or wanted.under_pico is not None
    costs: dict[str, Costs] = await costs_of(log, *rows) if priced else {}
    return {
        row.session_id: row
        for row in rows
        if wanted.has(row, costs[row.session_id].tree if priced else Cost(), now_us, running=row.session_id in holders)
    }


async def fill(log: Log, index: SearchIndex, clock: Clock, *, within_s: float, on_lag: Callable[[Lag], None]) -> None:
    """Bring the index up to date, for at most about `within_s`. `on_lag` is told the distance left after each step."""
    until_s = clock.monotonic_s() + within_s
    while await log.look(index.fill) and clock.monotonic_s() < until_s:
        on_lag(await log.look(index.lag))


async def keep_filled(log: Log, index: SearchIndex, clock: Clock, tell: Callable[[str], None]) -> NoReturn:
    """Keep the index up to date until cancelled. While the log does not change, nothing is done.

    It is then at most `REST_S` and one fill behind. Building a large index takes at most half of one core. `tell` is
    told of a fill that failed, which does not affect the log; it is tried again later.
    """
    token = 0
    while True:
        try:
            token = await log.changed(token)
            began_s, more = clock.monotonic_s(), True
            while more:
                more = await log.look(index.fill)
                now_s = clock.monotonic_s()
                await clock.sleep(now_s - began_s if more else REST_S)
                began_s = clock.monotonic_s()
        except LogFailed:
            raise
        except HoldfastError as error:
            tell(f"search is not up to date: {error}")
            await clock.sleep(FAILED_REST_S)
