"""The inbox: cards of open items, sessions that failed, ended, or wait; and the page of one item."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.serve.pages.frame import Sees
from holdfast.service.inbox import Entry, Shown, answered, answerers, expiry, inbox, shown
from holdfast.service.sessions import Store, costs_of
from holdfast.session.context.text import visible, visible_line
from holdfast.session.costs import Costs
from holdfast.session.rows import ItemRow, SessionRow
from holdfast.session.tools.policy import TREE

CARDS = 40
"""Number of oldest items, and of latest sessions of each status, on the page."""

WHOLE_LINES, WHOLE_CHARS = 12, 1_000
"""Maximum size of an action that its card shows; a longer one is answered on its own page."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """An item as a card.

    `plain` means that the question says all of the action, `whole` that the action is short enough for the list; `size`
    describes a longer one. `words` means that it takes an answer in words; `answered` is the answer and its author,
    empty for an open item.
    """

    item_id: str
    session_id: str
    kind: str
    name: str
    goal: str
    question: str
    action: str
    plain: bool
    whole: bool
    size: str
    why: str
    reach: str
    bound: str
    cost: str
    asked_us: int
    overdue: bool
    expires: str
    who: str
    digest: str
    evidence: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    words: bool = False
    replaces: str = ""
    marks: tuple[str, ...] = ()
    answered: str = ""
    can_grant: bool = False
    seen: bool = False


class Line(msgspec.Struct, frozen=True):
    """A session without an open item. `said` is its status or the reason why it waits."""

    session_id: str
    name: str
    goal: str
    said: str
    since_us: int
    cost: str
    marks: tuple[str, ...] = ()


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """The inbox of a viewer. `finished` ended after the viewer last looked; `running` is a count."""

    cards: tuple[Card, ...]
    waiting: tuple[Line, ...]
    failed: tuple[Line, ...]
    finished: tuple[Line, ...]
    running: int
    more: bool

    @property
    def needs(self) -> int:
        """Number of cards and sessions that wait for a user."""
        return len(self.cards) + len(self.waiting)

    @property
    def counted(self) -> int | None:
        """`needs` of a short inbox; None if there may be others that the page leaves out."""
        return self.needs if self.needs + len(self.failed) + self.running < CARDS else None


def card(found: Shown, row: SessionRow, name: str, costs: Costs, now_us: int) -> Card:
    """Return an item as a card."""
    item, request = found.item, found.request
    action = visible(request.action)
    lines = action.count("\n") + 1
    cut = item.kind == "question" and " ".join(request.action.split()) not in ("", request.title)
    guards = ("workspace files" if guard == TREE else guard.removeprefix("file:") for guard in request.guards)
    return Card(
        item_id=item.item_id,
        session_id=item.session_id,
        kind=item.kind,
        name=name,
        goal=row.goal,
        question=visible_line(request.title) + ("…" if cut else ""),
        action=action,
        plain=action.strip() == visible_line(request.title).strip(),
        whole=lines <= WHOLE_LINES and len(action) <= WHOLE_CHARS,
        size=f"{lines:,} line{'' if lines == 1 else 's'}, {len(action):,} characters",
        why=request.why,
        reach=request.touches,
        bound=", ".join(guards),
        cost=str(costs.tree),
        asked_us=item.opened_us,
        overdue=request.remind_us is not None and now_us >= request.remind_us,
        expires=expiry(item, request),
        who=answerers(found, now_us),
        digest=request.action_digest,
        evidence=request.evidence,
        options=request.options,
        words=request.needs_words,
        replaces=request.replaces,
        marks=tuple(row.marks.split()),
        answered=answered(found) or ("" if item.status == "open" else item.status),
        can_grant=item.kind in ("tool", "egress"),
        seen=item.seen_us is not None,
    )


async def page(store: Store, now_us: int, looked_us: int, sees: Sees | None = None) -> Inbox:
    """Return the inbox of a viewer who last looked at the brief at `looked_us`.

    `sees` limits it to sessions that the viewer may see.
    """
    entries = [each for each in await inbox(store, now_us, limit=CARDS) if sees is None or await sees(each.row)]
    shown_entries = [each for each in entries if each.group != "running"]
    costs = await costs_of(store, *{each.row.session_id: each.row for each in shown_entries}.values())

    def lines(group: str, entries: Iterable[Entry]) -> tuple[Line, ...]:
        return tuple(
            Line(
                each.row.session_id,
                each.name or each.row.key or each.row.session_id,
                each.row.goal,
                each.title,
                each.since_us,
                costs[each.row.session_id].tree.short,
                tuple(each.row.marks.split()),
            )
            for each in entries
            if each.group == group and each.item is None
        )

    cards = tuple(
        card(each.item, each.row, each.name, costs[each.row.session_id], now_us) for each in entries if each.item
    )
    ended = [each for each in entries if each.group == "finished" and each.since_us > looked_us and not each.row.parent]
    return Inbox(
        cards=cards,
        waiting=lines("needs you", entries),
        failed=lines("errors", entries),
        finished=lines("finished", ended),
        running=sum(each.group == "running" for each in entries),
        more=len(cards) >= CARDS,
    )


async def one(store: Store, item: ItemRow, row: SessionRow, now_us: int) -> Card:
    """Return one item as a card, whole."""
    found = await shown(store, item, now_us)
    costs = await costs_of(store, row)
    return card(found, row, row.key or row.session_id, costs[row.session_id], now_us)
