"""The brief since a user's last look: the trees that moved, each with its brief."""

from __future__ import annotations

import msgspec

from holdfast.kinds.mission.brief.brief import Brief
from holdfast.kinds.mission.brief.document import Evidence, Line
from holdfast.repo.base import Shelf
from holdfast.serve.pages.frame import Sees, href
from holdfast.service.briefs import Moved, brief_of, moved
from holdfast.service.sessions import Store
from holdfast.session.costs import Cost
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds

TREES = 8
"""Number of trees whose briefs are on the page; the others are links to theirs."""

LOOKED_AT = 40
"""Number of latest sessions of each status that are looked at."""

EXAMPLES, LINKS = 6, 3

ORDER = {"errors": 0, "needs you": 1, "finished": 2, "running": 3}
"""Groups of the inbox in the order of the brief: not done, waiting, done, running."""

TITLES = {
    "Decisions": "Waits for you",
    "Changes": "Changed",
    "Problems": "Went wrong",
    "Cost": "Spent",
}


class Link(msgspec.Struct, frozen=True):
    """A link to an event that supports a line."""

    session_id: str
    seq: int


class Claim(msgspec.Struct, frozen=True):
    """One sentence, the events that support it, and its examples."""

    text: str
    links: tuple[Link, ...]
    examples: tuple[tuple[str, tuple[Link, ...]], ...] = ()
    more: int = 0
    trouble: bool = False


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree that moved: its brief as sections of claims."""

    session_id: str
    name: str
    goal: str
    group: str
    headline: str
    sections: tuple[tuple[str, tuple[Claim, ...]], ...]
    updated_us: int
    href: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The brief of a user. `first` means that the user has not looked before; `others` are further trees that moved."""

    since_us: int
    first: bool
    trees: tuple[Tree, ...]
    others: tuple[tuple[str, str, str, int], ...]
    met: int
    criteria: int
    merged: int
    spent: str
    waits: int


async def page(
    store: Store, kinds: Kinds, shelf: Shelf | None, now_us: int, since_us: int, *, first: bool, sees: Sees | None
) -> Page:
    """Return the brief since a time. `sees` limits it to sessions that the viewer may see."""
    found = await moved(store, now_us, since_us, limit=LOOKED_AT)
    tops: dict[str, Moved] = {}
    for each in found:
        root = each.entry.row.root or each.entry.row.session_id
        if sees is None or await sees(each.entry.row):
            tops.setdefault(root, each)
    ranked = sorted(tops.items(), key=lambda each: (ORDER[each[1].entry.group], -each[1].entry.since_us))
    trees, spent, met, criteria, merged = [], Cost(), 0, 0, 0
    for root, each in ranked[:TREES]:
        row = each.entry.row if each.entry.row.session_id == root else await store.find(root)
        told = await brief_of(store, kinds, shelf, row, since_us=since_us)
        trees.append(tree(row, told, each.entry.group))
        met += told.numbers.get("met") or 0
        criteria += told.numbers.get("criteria") or 0
        merged += told.numbers.get("merged") or 0
        pico = sum(value or 0 for name, value in told.numbers.items() if name.endswith("_pico"))
        spent += Cost(pico, bool(told.numbers.get("unpriced")))
    others = tuple(
        (root, each.entry.name or root, each.entry.title, each.entry.since_us) for root, each in ranked[TREES:]
    )
    return Page(
        since_us=since_us,
        first=first,
        trees=tuple(trees),
        others=others,
        met=met,
        criteria=criteria,
        merged=merged,
        spent=str(spent),
        waits=sum(each.entry.group == "needs you" for each in found),
    )


def alone(row: SessionRow, told: Brief) -> Page:
    """Return the page of one brief."""
    found = tree(row, told, "running")
    return Page(
        since_us=0, first=False, trees=(found,), others=(), met=0, criteria=0, merged=0, spent=str(Cost()), waits=0
    )


def tree(row: SessionRow, told: Brief, group: str) -> Tree:
    """Return the brief of a tree as sections of claims."""
    sections = tuple(
        (TITLES.get(section.title, section.title), tuple(_claim(line, section.title) for line in section.lines))
        for section in told.sections
    )
    return Tree(
        session_id=row.session_id,
        name=told.name or row.key or row.session_id,
        goal=told.goal,
        group=group,
        headline=told.headline,
        sections=sections,
        updated_us=row.updated_us,
        href=href(row),
    )


def _claim(line: Line, title: str) -> Claim:
    examples = tuple((each.text, _links(each.evidence)) for each in line.examples[:EXAMPLES])
    return Claim(
        line.text,
        _links(line.evidence),
        examples,
        max(0, len(line.examples) - EXAMPLES),
        title in ("Decisions", "Problems"),
    )


def _links(evidence: tuple[Evidence, ...]) -> tuple[Link, ...]:
    return tuple(Link(each.session_id, each.seq) for each in evidence[:LINKS])
