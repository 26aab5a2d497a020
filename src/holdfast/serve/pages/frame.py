"""The frame around every screen: five places with counts, spend against the cap, and the emergency stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.kinds import ITEMS, MISSION
from holdfast.service.inbox import waiting
from holdfast.service.posting import person
from holdfast.service.sessions import Store
from holdfast.session.money import HOME_ACCOUNT
from holdfast.session.rows import SessionRow

COUNTED = 100
"""Number up to which places count exactly; beyond it they say `100+`."""


Sees = Callable[[SessionRow], Awaitable[bool]]
"""True for a session that the viewer of a page may see."""

BOARDS = {MISSION: "/missions/", ITEMS: "/items/"}
"""Agent name → the pages of such sessions, which lead on to the page of a session that only has that name."""


def href(row: SessionRow) -> str:
    """Return the address of a session's page: a mission and a run over a list have one of their own."""
    return f"{'/sessions/' if row.parent else BOARDS.get(row.name, '/sessions/')}{row.session_id}"


class Place(msgspec.Struct, frozen=True):
    """A place of the navigation. `key` follows `g` on the keyboard; `count` is empty for none."""

    name: str
    href: str
    key: str
    count: str = ""


class Viewer(msgspec.Struct, frozen=True):
    """The user who looks. `csrf` is the token of forms; `may_act` allows answers and commands, `may_stop` the stop."""

    name: str
    csrf: str = ""
    may_act: bool = True
    may_stop: bool = True
    whole_home: bool = True


class Stopped(msgspec.Struct, frozen=True):
    """The emergency stop in force."""

    by: str
    at_us: int
    reason: str


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The frame of a page made at `now_us`. `spent` is the spend of the last 24 hours, `cap` its cap, None for none."""

    viewer: Viewer
    places: tuple[Place, ...]
    here: str
    now_us: int
    spent_pico: int | None = None
    cap_pico: int | None = None
    stopped: Stopped | None = None


async def frame(store: Store, viewer: Viewer, here: str, now_us: int, needs: int | None = None) -> Frame:
    """Return the frame of a page at the place named `here`. `needs` is the number beside *Inbox*, None to count it.

    A viewer limited to a project gets no counts and no money: they are those of the whole home.
    """
    stop = await store.stopped()
    stopped = Stopped(person(stop.by), stop.at_us, stop.reason) if stop is not None else None
    needed = running = ""
    spent = cap = None
    if viewer.whole_home:
        needed = _bounded(await waiting(store, now_us, COUNTED) if needs is None else needs)
        running = _bounded(len(await store.holders()))
        account = await store.account(HOME_ACCOUNT)
        if account is not None:
            spent, cap = account.spent_in("day", now_us), account.cap_day_pico
    places = (
        Place("Inbox", "/", "i", needed),
        Place("Brief", "/brief", "b"),
        Place("Missions", "/missions", "m"),
        Place("Session", "/sessions/last", "s"),
        Place("Fleet", "/fleet", "f", running and f"{running} running"),
    )
    return Frame(
        viewer=viewer, places=places, here=here, now_us=now_us, spent_pico=spent, cap_pico=cap, stopped=stopped
    )


def _bounded(number: int) -> str:
    return f"{COUNTED}+" if number > COUNTED else str(number) if number else ""
