"""Rows of the live view of a loop: its items, and the checks of the current one."""

from __future__ import annotations

from holdfast.app.screen.panel import Row, Span
from holdfast.errors import ContractInvalid
from holdfast.facts.codec import Event
from holdfast.facts.mission import Item
from holdfast.facts.session import SessionCreated
from holdfast.kinds.loop.agent import spec_of
from holdfast.kinds.loop.files import Board, read_board
from holdfast.kinds.loop.outcome import StoryReader, holds
from holdfast.kinds.loop.plan import LoopSpec, Probe, probes
from holdfast.kinds.mission.contract.contents import command_line
from holdfast.service.event_lines import one_line

ITEMS_SHOWN = 5
CHECKS_SHOWN = 4


class LoopRows:
    """Items and checks of a loop (a `Board`), from the events of its session."""

    def __init__(self) -> None:
        self.progress = ""
        self._spec: LoopSpec | None = None
        self._reader = StoryReader()
        self._board: Board | None = None
        self._iteration = 0
        self._attempts: dict[str, int] = {}
        self._outcomes: dict[str, bool] = {}

    def take(self, event: Event) -> None:
        """Apply an event. An event that was applied before changes nothing."""
        if event.seq <= self._reader.through_seq:
            return
        if isinstance(event.fact, SessionCreated):
            self._spec = spec_of(event.fact.agent)
        if not self._reader.take(event) or self._spec is None:
            return
        story = self._reader.story()
        plan, kept = story.plan, story.files.get(self._spec.items)
        if kept is not None and kept.data is not None:
            try:
                self._board = read_board(kept.data, self._spec.items)
            except ContractInvalid:
                self._board = None
        if plan is not None and plan.kind == "work" and plan.iteration > self._iteration:
            self._iteration = plan.iteration
            self._attempts[plan.item] = self._attempts.get(plan.item, 0) + 1
        if self._board is not None:
            self.progress = f"{len(self._board.passing)} of {len(self._board.items)} pass"
        elif self._iteration:
            self.progress = f"iteration {self._iteration}"
        for purpose, item, check in self._probes():
            if purpose in story.outcomes:
                self._outcomes[f"{item} {command_line(check)}"] = holds(check, story.outcomes[purpose])

    def rows(self) -> list[Row]:
        """The items around the current one, with its checks below it."""
        plan = self._reader.story().plan
        items = list(self._board.items) if self._board is not None else []
        place = next((at for at, item in enumerate(items) if plan is not None and item.id == plan.item), 0)
        first = max(0, min(place - 1, len(items) - ITEMS_SHOWN))
        shown = items[first : first + ITEMS_SHOWN]
        wide = max((len(item.id) for item in shown), default=0)
        rows: list[Row] = []
        for item in shown:
            current = plan is not None and plan.kind == "work" and item.id == plan.item
            rows.append(self._item(item, wide, current=current))
            rows += self._checks(item.id, " " * 7) if current else []
        if len(items) > len(shown):
            rows.append(Row(((f"and {len(items) - len(shown)} more items", "dim"),)))
        return [*rows, *self._checks("", "")]

    def _item(self, item: Item, wide: int, *, current: bool) -> Row:
        assert self._board is not None
        stands: Span = ("open   ", "dim")
        if item.id in self._board.passing:
            stands = ("passes ", "green")
        elif current:
            stands = ("now    ", "bold")
        attempt = self._attempts.get(item.id, 0)
        tail = f"  attempt {attempt}" if current and attempt > 1 else ""
        return Row((stands, (f"{item.id:<{wide}}  {one_line(item.description)}", "")), tail)

    def _checks(self, item: str, indent: str) -> list[Row]:
        """The checks of an item, or without one those of the loop, with their latest results."""
        words: dict[bool | None, Span] = {
            True: ("ok     ", "green"),
            False: ("fails  ", "red"),
            None: ("to run ", "dim"),
        }
        rows = []
        for purpose, name, check in self._probes():
            if name == item and not purpose.startswith("again:"):
                stands = words[self._outcomes.get(f"{item} {command_line(check)}")]
                rows.append(Row(((indent, ""), stands, (one_line(command_line(check)), ""))))
        return rows[:CHECKS_SHOWN]

    def _probes(self) -> list[Probe]:
        plan, spec = self._reader.story().plan, self._spec
        if spec is None or plan is None:
            return []
        items = {item.id: item for item in self._board.items} if self._board is not None else {}
        return probes(spec, items.get(plan.item), [items[each] for each in plan.again if each in items])
