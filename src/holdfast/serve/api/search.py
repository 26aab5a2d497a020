"""Full-text search over the API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.serve.api.operations import Asked, Nothing, Operation
from holdfast.serve.bodies import SearchPage, hit_info
from holdfast.service.search import parse_search, search

HITS_MAX = 100
"""Sessions in a page."""


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`q` has the words and filters of `holdfast search`, `after` is the cursor of a page."""

    q: Annotated[str, msgspec.Meta(min_length=1)]
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=HITS_MAX)] = 20


async def searched(asked: Asked[SearchQuery, Nothing]) -> SearchPage:
    """Search the words of all sessions: goals, messages, tool calls, results, and file names."""
    site, visitor, query = asked.site, asked.visitor, asked.query
    wanted = parse_search([query.q])
    after = (await site.find(visitor, query.after)).session_id if query.after else ""
    page = await search(
        site.store, site.index, wanted, site.clock.now_us(), after=after, limit=query.limit, keeps=site.keeps(visitor)
    )
    last = page.hits[-1].session.row.session_id if page.more else None
    return SearchPage([hit_info(each) for each in page.hits], last, page.complete, page.lag.events)


OPERATIONS = (Operation("GET", "/search", searched, SearchPage, query=SearchQuery),)
