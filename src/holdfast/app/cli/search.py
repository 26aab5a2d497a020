"""`holdfast search`: full-text search of sessions."""

from __future__ import annotations

import argparse
from contextlib import closing

import anyio.to_thread

from holdfast.app.call import Call, positive
from holdfast.app.cli.ps import listed, public
from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import database_path
from holdfast.app.wrap import terminal_width
from holdfast.clock import SystemClock, rfc3339
from holdfast.log.search.index import Excerpt, Lag, SearchIndex, search_path
from holdfast.service.event_lines import counted
from holdfast.service.filters import SYNTAX
from holdfast.service.inbox import span
from holdfast.service.search import Hit, fill, parse_search, search
from holdfast.session.context.text import harmless

LIMIT = 10
"""Default number of sessions."""

FILL_S = 30.0
"""Time that a search spends on bringing the index up to date, in seconds."""

QUIET_S = 2.0
"""Time after which, and interval at which, progress of that is reported, in seconds."""

WIDTH = 120
"""Width of the lines of events without a terminal."""


def search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `search`."""
    filters = SYNTAX.partition(", or words")[0]
    parser.add_argument(
        "words",
        metavar="WORDS",
        nargs="+",
        help=f'Words that one event has all of, "a phrase", begin*, and filters of sessions: {filters}',
    )
    parser.add_argument("--limit", metavar="N", type=positive, default=LIMIT, help=f"Sessions (default: {LIMIT})")
    parser.add_argument("--rebuild", action="store_true", help="First build the index again from the log")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def search_run(call: Call) -> int:
    """Search, after bringing the index up to date."""
    query, clock = parse_search(call.args.words), SystemClock()
    told_s = clock.monotonic_s()

    def progress(lag: Lag) -> None:
        nonlocal told_s
        if clock.monotonic_s() - told_s > QUIET_S:
            told_s = clock.monotonic_s()
            call.note(f"indexing: {counted(lag.events, 'event')} left")

    with closing(SearchIndex(search_path(database_path(call.settings)))) as index:
        async with open_runtime(call.settings) as runtime:
            if call.args.rebuild:
                await anyio.to_thread.run_sync(index.clear)
            await fill(runtime.store, index, clock, within_s=FILL_S, on_lag=progress)
            page = await search(runtime.store, index, query, clock.now_us(), limit=call.args.limit)
    lines = listed(hit.session for hit in page.hits)
    if page.hits and not call.json:
        call.say(lines[0])
    for hit, line in zip(page.hits, lines[1:], strict=True):
        if call.json:
            call.emit(_public(hit))
        else:
            for each in (line, *_events(hit)):
                call.say(each)
    if not page.hits:
        call.note(f"nothing found: no event of a session that passes has all of: {' '.join(call.args.words)}")
    if page.more:
        call.note(f"and more sessions: add words, or --limit {call.args.limit * 5}")
    if not page.complete:
        call.note("the words are frequent, and only the latest events with them were looked at; add words")
    if page.lag.events:
        call.note(f"{counted(page.lag.events, 'event')} are not indexed yet; search again to go on with it")
    return 0


def _events(hit: Hit) -> list[str]:
    """The lines of a session's matching events."""
    now_us, width = SystemClock().now_us(), terminal_width(1) or WIDTH
    lines = []
    for event in hit.events:
        head = f"  #{event.seq} {span(now_us - event.at_us)} {event.kind}: "
        lines.append(head + fitted(event.excerpt, max(1, width - len(head))))
    if hit.count > len(hit.events):
        lines.append(f"  and {counted(hit.count - len(hit.events), 'more event')}")
    return lines


def fitted(excerpt: Excerpt, room: int) -> str:
    """An excerpt on one line of at most `room` characters, with `*` around its words and the first of them in sight."""
    text, at, parts = excerpt.text, 0, list[str]()
    for start, end in excerpt.marks:
        parts += [text[at:start], f"*{text[start:end]}*"]
        at = end
    parts.append(text[at:])
    before, after = (" ".join(harmless(part).split()) for part in (parts[0], "".join(parts[1:])))
    gap = " " if parts[0][-1:].isspace() else ""
    left = max(room // 3, room - len(after))
    if len(before) + len(gap) > left:
        before = f"…{before[-(left - len(gap) - 1) :]}" if left > len(gap) + 1 else ""
    line = f"{before}{gap}{after}" if before else after
    return line if len(line) <= room else f"{line[: room - 1]}…"


def _public(hit: Hit) -> dict[str, object]:
    """A hit for scripts."""
    row = public(hit.session.row, hit.session.costs, running=hit.session.running)
    events = [
        {
            "seq": event.seq,
            "kind": event.kind,
            "at": rfc3339(event.at_us),
            "excerpt": event.excerpt.text,
            "marks": event.excerpt.marks,
        }
        for event in hit.events
    ]
    return {**row, "matching": hit.count, "matches": events}
