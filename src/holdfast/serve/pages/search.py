"""Search: sessions with events that have all the words, with excerpts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.errors import UsageError
from holdfast.log.search.index import Excerpt, SearchIndex
from holdfast.serve.pages.fleet import Row, row_of
from holdfast.service.search import Log, parse_search, search
from holdfast.session.rows import SessionRow

HITS = 20
"""Number of sessions on a page."""

PIECE = 200
"""Maximum length of a piece of an excerpt."""


class Match(msgspec.Struct, frozen=True):
    """A matching event. `pieces` are its excerpt: texts, with True for one of the words."""

    seq: int
    kind: str
    at_us: int
    pieces: tuple[tuple[str, bool], ...]


class Found(msgspec.Struct, frozen=True):
    """A session with its best matching events, and the number of further ones."""

    row: Row
    matches: tuple[Match, ...]
    further: int


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A page of results. `after` is the cursor of the next page, empty at the end; `wrong` an invalid search.

    `complete` is false if only the latest matching events were looked at; `lag` events are not indexed yet.
    """

    query: str
    found: tuple[Found, ...] = ()
    after: str = ""
    wrong: str = ""
    complete: bool = True
    lag: int = 0


async def page(
    log: Log,
    index: SearchIndex,
    now_us: int,
    query: str,
    after: str,
    *,
    keeps: Callable[[SessionRow], Awaitable[bool]] | None,
) -> Results:
    """Return a page of results for what a user typed, after the session `after`."""
    if not query.strip():
        return Results(query=query)
    try:
        wanted = parse_search([query])
        done = await search(log, index, wanted, now_us, after=after, limit=HITS, keeps=keeps)
    except UsageError as error:
        return Results(query=query, wrong=str(error))
    return Results(
        query=query,
        found=tuple(
            Found(
                row_of(hit.session),
                tuple(Match(each.seq, each.kind, each.at_us, pieces(each.excerpt)) for each in hit.events),
                hit.count - len(hit.events),
            )
            for hit in done.hits
        ),
        after=done.hits[-1].session.row.session_id if done.more else "",
        complete=done.complete,
        lag=done.lag.events,
    )


def pieces(excerpt: Excerpt) -> tuple[tuple[str, bool], ...]:
    """Split an excerpt at its marks, on one line."""
    found, at = list[tuple[str, bool]](), 0
    for start, end in excerpt.marks:
        found += [(excerpt.text[at:start], False), (excerpt.text[start:end], True)]
        at = end
    found.append((excerpt.text[at:], False))
    return tuple((re.sub(r"\s+", " ", text)[:PIECE], hit) for text, hit in found if text)
