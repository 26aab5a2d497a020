"""What a brief says of money and turns: by role, over a session and all below it. Pure."""

from __future__ import annotations

import msgspec

from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.kinds.mission.brief.shapes import Evidence, Example, Line, Tree, counted, of
from holdfast.session.money import usd


class Spent(msgspec.Struct):
    """What a role spent. `unpriced` requests are of unknown cost; `last` is where something was last spent."""

    pico: int = 0
    requests: int = 0
    unpriced: int = 0
    last: Evidence | None = None

    @property
    def known(self) -> int | None:
        """The cost in pico-dollars, None when nothing of it is known."""
        return None if self.unpriced and not self.pico else self.pico

    def cost(self) -> str:
        """The cost alone: an unknown one is said, never shown as nothing."""
        if not self.unpriced:
            return usd(self.pico)
        return f"at least {usd(self.pico)}" if self.pico else "unknown"

    def words(self) -> str:
        """The cost, and of how many requests."""
        requests = counted(self.requests, "request")
        if not self.unpriced:
            return f"{usd(self.pico)}, {requests}"
        without = f"{self.unpriced} of {requests} without a price"
        return f"at least {usd(self.pico)}, {without}" if self.pico else f"unknown cost, {without}"


def cost_of(event: Event) -> tuple[int, bool] | None:
    """What an event spends in pico-dollars, and whether something of it is unknown; None when it spends nothing."""
    fact = event.fact
    match fact:
        case ModelRequestEnd():
            return fact.cost_pico or 0, fact.cost_pico is None
        case ToolResult() | ToolOutcomeUnknown() if fact.cost_pico:
            return fact.cost_pico, False
        case ToolDispatched() if fact.settled_pico:
            return fact.settled_pico, False
        case _:
            return None


def by_role(tree: Tree, *, whole: bool = False) -> dict[str, Spent]:
    """What each role spent, of what is news; with `whole` since the beginning."""
    found: dict[str, Spent] = {}
    for part in tree.parts:
        role = tree.role(part)
        for event in part.events:
            cost = cost_of(event)
            if cost is None or not (whole or tree.new(event)):
                continue
            spent = found.setdefault(role, Spent())
            spent.pico += cost[0]
            spent.unpriced += cost[1]
            spent.requests += isinstance(event.fact, ModelRequestEnd)
            spent.last = of(event)
    return found


def total(spent: dict[str, Spent]) -> Spent:
    """All of it."""
    whole = Spent()
    for each in spent.values():
        whole.pico += each.pico
        whole.requests += each.requests
        whole.unpriced += each.unpriced
        whole.last = each.last or whole.last
    return whole


def lines(spent: dict[str, Spent], cap_pico: int | None, session_id: str) -> tuple[Line, ...]:
    """The money by role, the dearest first."""
    if not spent:
        return ()
    whole = total(spent)
    cap = f", cap {usd(cap_pico)}" if cap_pico is not None else ""
    ordered = sorted(spent.items(), key=lambda each: -each[1].pico)
    examples = tuple(
        Example(f"{role} {each.words()}", (each.last,) if each.last is not None else ()) for role, each in ordered
    )
    return (Line("spend", f"{whole.words()}{cap}", len(spent), examples=examples, more=("budget", session_id)),)
