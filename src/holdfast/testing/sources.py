"""Conformance kit of sources of events.

`SOURCE_CHECKS` maps a name to an async function of a fresh rig. Run each check on yours:

    @pytest.mark.parametrize("name", SOURCE_CHECKS)
    async def test_my_source(name):
        async with my_rig() as rig:
            await SOURCE_CHECKS[name](rig)

`holdfast.sources.fake` passes it too. Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio
import anyio.to_thread

from holdfast.errors import SourceError
from holdfast.sources.base import Polled, Source


class SourceRig(Protocol):
    """A source and the world behind it, running and empty."""

    @property
    def secrets(self) -> Sequence[str]:
        """Secret strings that must not leak into an error."""
        ...

    def source(self) -> Source:
        """Return a new object for the same source, as another process would make it."""
        ...

    def add(self, name: str) -> None:
        """Make an event with this name happen. Its data contains the name in some field. May block; any thread."""
        ...

    def break_it(self) -> None:
        """Make polls fail until `mend`."""
        ...

    def mend(self) -> None:
        """End the failure."""
        ...


SourceCheck = Callable[[SourceRig], Awaitable[None]]

POLLS_MAX = 200
"""Polls within which a source has delivered all events of a check."""


def names(polled: Polled) -> list[str]:
    """The names of events, from their data."""
    values = [[str(value).strip() for value in found.data.values()] for found in polled.events]
    return [next(value for value in each if value.startswith("event-")) for each in values]


async def drain(source: Source, cursor: str = "", limit: int = 100) -> tuple[dict[str, str], str]:
    """Poll until nothing is left; return key → name, and the cursor. Events that come again have the same key."""
    found: dict[str, str] = {}
    for _ in range(POLLS_MAX):
        polled = await source.poll(cursor, limit)
        assert len(polled.events) <= limit, f"{len(polled.events)} events, at most {limit} were asked for"
        found |= zip((each.key for each in polled.events), names(polled), strict=True)
        if not polled.more and not polled.events:
            return found, polled.cursor
        cursor = polled.cursor
    raise AssertionError(f"not empty after {POLLS_MAX} polls")


async def an_empty_source_has_no_events(rig: SourceRig) -> None:
    first = await rig.source().poll("", 10)
    assert (first.events, first.rejected, first.more) == ((), (), False)
    again = await rig.source().poll(first.cursor, 10)
    assert (again.events, again.cursor) == ((), first.cursor), "the cursor changed although nothing happened"


async def events_arrive_and_the_cursor_goes_on_after_them(rig: SourceRig) -> None:
    _, start = await drain(rig.source())
    rig.add("event-1")
    rig.add("event-2")
    found, cursor = await drain(rig.source(), start)
    assert sorted(found.values()) == ["event-1", "event-2"]
    rig.add("event-3")
    later, _ = await drain(rig.source(), cursor)
    assert "event-3" in later.values()
    assert set(later.values()) - {"event-3"} <= set(found.values())
    assert {key for key, name in later.items() if name != "event-3"} <= set(found), "an old event has a new key"


async def a_poll_that_was_not_recorded_repeats_the_same_events(rig: SourceRig) -> None:
    """A process that dies between the poll and the append polls with the old cursor again."""
    start = (await rig.source().poll("", 10)).cursor
    for number in range(3):
        rig.add(f"event-{number}")
    first = await rig.source().poll(start, 10)
    again = await rig.source().poll(start, 10)
    assert sorted(names(first)) == ["event-0", "event-1", "event-2"]
    assert [(each.key, each.data) for each in again.events] == [(each.key, each.data) for each in first.events]
    assert again.cursor == first.cursor


async def the_limit_is_obeyed_and_the_rest_follows(rig: SourceRig) -> None:
    start = (await rig.source().poll("", 10)).cursor
    wanted = [f"event-{number:02}" for number in range(23)]
    for name in wanted:
        rig.add(name)
    first = await rig.source().poll(start, 5)
    assert len(first.events) == 5
    assert first.more, "more events wait than the limit"
    rest, _ = await drain(rig.source(), first.cursor, limit=5)
    assert sorted({*names(first), *rest.values()}) == wanted


async def keys_are_different_for_different_events(rig: SourceRig) -> None:
    start = (await rig.source().poll("", 10)).cursor
    for number in range(10):
        rig.add(f"event-{number}")
    found, _ = await drain(rig.source(), start)
    assert len(found) == 10
    assert len(set(found.values())) == 10
    assert all(0 < len(key) <= 200 for key in found)


async def nothing_that_happens_during_polls_is_lost(rig: SourceRig) -> None:
    found: dict[str, str] = {}
    cursor = (await rig.source().poll("", 10)).cursor
    wanted = [f"event-{number:02}" for number in range(40)]
    done = anyio.Event()

    async def happen() -> None:
        for name in wanted:
            await anyio.to_thread.run_sync(rig.add, name)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(happen)
        while not done.is_set():
            polled = await rig.source().poll(cursor, 7)
            found |= zip((each.key for each in polled.events), names(polled), strict=True)
            cursor = polled.cursor
    rest, _ = await drain(rig.source(), cursor)
    assert sorted({*found.values(), *rest.values()}) == wanted


async def a_failure_is_an_error_and_loses_nothing(rig: SourceRig) -> None:
    start = (await rig.source().poll("", 10)).cursor
    rig.add("event-1")
    rig.break_it()
    try:
        await rig.source().poll(start, 10)
    except SourceError as error:
        told = [str(error), repr(error.__cause__), repr(error.__context__)]
        assert [secret for secret in rig.secrets for text in told if secret in text] == [], "a secret leaked"
    else:
        raise AssertionError("a broken source answered a poll")
    rig.mend()
    found, _ = await drain(rig.source(), start)
    assert list(found.values()) == ["event-1"]


SOURCE_CHECKS: dict[str, SourceCheck] = {
    name: check
    for name, check in vars(sys.modules[__name__]).items()
    if callable(check) and getattr(check, "__annotations__", {}).get("rig") == "SourceRig"
}
"""Name → check of a source."""

__all__ = ["SOURCE_CHECKS", "SourceCheck", "SourceRig", "drain", "names"]
