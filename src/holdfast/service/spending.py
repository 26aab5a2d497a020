"""Query of what the sessions of a home cost: by day, model, session, or project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Literal, get_args

import msgspec

from holdfast.log.base import Index
from holdfast.session.costs import Cost, costs
from holdfast.session.money import HOUR_US
from holdfast.session.rows import SessionRow

By = Literal["day", "model", "session", "project"]
WAYS: tuple[By, ...] = get_args(By)

EARLIER = "earlier"
"""Label of what was spent before the hours that accounts keep."""

OWN = "(own folders)"
"""Label of the sessions that work in folders that Holdfast made for them."""


class Line(msgspec.Struct, frozen=True):
    """One line of a report: its label, its cost, and its number of sessions, 0 for days."""

    label: str
    cost: Cost
    sessions: int = 0


async def spending(index: Index, by: By, day_of: Callable[[int], str]) -> list[Line]:
    """Return the costs of all sessions; days in order, other lines by cost. The sum is the same whatever `by` is.

    `day_of` names the day of a time in microseconds. Days are known for about the last week of work of each session;
    what is older is one line.
    """
    rows = await index.sessions()
    spent = costs(rows)
    known = spent.keys()
    tops = [row for row in rows if row.parent not in known]
    if by == "day":
        return await _days(index, [(row, spent[row.session_id].tree) for row in tops], day_of)
    found: dict[str, Line] = {}
    for row in rows if by == "model" else tops:
        cost = spent[row.session_id].own if by == "model" else spent[row.session_id].tree
        folder = OWN if row.session_id in PurePath(row.workspace).parts else row.workspace
        label = {"model": row.model, "session": row.key or row.session_id, "project": folder}[by]
        line = found.get(label, Line(label, Cost()))
        found[label] = Line(label, line.cost + cost, line.sessions + 1)
    return sorted(found.values(), key=lambda line: (-line.cost.pico, line.label))


async def _days(index: Index, tops: list[tuple[SessionRow, Cost]], day_of: Callable[[int], str]) -> list[Line]:
    accounts = {account.account_id: account for account in await index.accounts()}
    days: dict[str, int] = {}
    earlier = Cost()
    for row, cost in tops:
        account = accounts.get(row.accounts[0]) if row.accounts else None
        hours = account.spend.hours if account is not None else ()
        for number, pico in hours:
            day = day_of(number * HOUR_US)
            days[day] = days.get(day, 0) + pico
        earlier += Cost(cost.pico - sum(pico for _, pico in hours), cost.unpriced)
    lines = [Line(day, Cost(pico)) for day, pico in sorted(days.items())]
    return [Line(EARLIER, earlier), *lines] if earlier != Cost() else lines
