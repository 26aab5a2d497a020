"""Costs of sessions and of their trees, from their rows. Each view and report shows these, so they agree."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.session.money import usd, usd_float
from holdfast.session.rows import UNPRICED, SessionRow


class Cost(msgspec.Struct, frozen=True):
    """Known cost of one session or of several, in pico-dollars. `unpriced`: a part had no price, so it is a minimum."""

    pico: int = 0
    unpriced: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.pico + other.pico, self.unpriced or other.unpriced)

    def __str__(self) -> str:
        """Format it: `$0.0042`, `at least $0.0042`, or `unknown cost`."""
        if not self.unpriced:
            return usd(self.pico)
        return f"at least {usd(self.pico)}" if self.pico else "unknown cost"

    @property
    def short(self) -> str:
        """The text for a column: `$0.0042`, `$0.0042+` for a minimum, `–` when nothing of it is known."""
        if not self.unpriced:
            return usd(self.pico)
        return f"{usd(self.pico)}+" if self.pico else "–"

    @property
    def usd(self) -> float | None:
        """Dollars as a number for JSON; None when a part is unknown."""
        return None if self.unpriced else usd_float(self.pico)


class Costs(msgspec.Struct, frozen=True):
    """Cost of a session's tree, which is the session and all sessions below it, and the session's own."""

    tree: Cost = Cost()
    own: Cost = Cost()

    def __str__(self) -> str:
        """Format the cost of the tree, and the session's own if it differs."""
        return str(self.tree) if self.tree == self.own else f"{self.tree} ({self.own} its own)"

    def fields(self) -> dict[str, float | None]:
        """Return both as fields of JSON data."""
        return {"cost_usd": self.tree.usd, "own_cost_usd": self.own.usd}


def own_cost(row: SessionRow) -> Cost:
    """Return the cost of a session without those below it."""
    return Cost(row.cost_pico, UNPRICED in row.marks.split())


def costs(rows: Iterable[SessionRow]) -> dict[str, Costs]:
    """Return the costs by session id. `rows` are whole trees, or the parts of trees below some sessions."""
    rows = list(rows)
    own = {row.session_id: own_cost(row) for row in rows}
    tree = dict(own)
    for row in sorted(rows, key=lambda row: -row.depth):
        if row.parent in tree:
            tree[row.parent] += tree[row.session_id]
    return {session_id: Costs(tree[session_id], own[session_id]) for session_id in own}
