"""The boundaries of a golden run: right before and right after each of its appends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.faults import oracle
from tests.faults.brains import Nursery
from tests.faults.seams import Seam
from tests.faults.story import GOLDEN, Session, open_session

Side = Literal["before", "after"]


@dataclass(frozen=True)
class Boundary:
    """One side of the `nth` append."""

    nth: int
    side: Side


@dataclass
class Golden:
    """A run that nobody killed, and the event types of each of its appends, in order."""

    record: oracle.Record
    appends: list[list[str]]

    def around(self, type_: str, which: int = 0) -> list[Boundary]:
        """Both sides of an append that holds an event of that type: the first, or another of them."""
        nths = [nth for nth, types in enumerate(self.appends, 1) if type_ in types]
        return [Boundary(nths[which], "before"), Boundary(nths[which], "after")]

    def every(self) -> list[Boundary]:
        """Both sides of every append."""
        sides: tuple[Side, Side] = ("before", "after")
        return [Boundary(nth, side) for nth in range(1, len(self.appends) + 1) for side in sides]

    def spread(self) -> list[Boundary]:
        """The first and the last, and both sides of what matters most."""
        every = self.every()
        some = [every[0], every[-2], every[-1]]
        some += self.around("hands.provisioned") + self.around("hands.released")
        some += self.around("tool.dispatched", 3) + self.around("agent.tool_result", 3)
        some += self.around("tool.dispatched", -1)[1:] + self.around("agent.tool_result", 6)[1:]
        some += self.around("agent.tool_use", 2) + self.around("span.model_request_start", 4)[1:]
        return list(dict.fromkeys(some))


def golden_run(home: Path, brains: Nursery, *, sandbox: bool) -> Golden:
    """The story without a death."""
    session = open_session(home, GOLDEN, sandbox=sandbox)
    brain = brains.wake(session.home, session.session_id)
    assert brain.wait() == 0, brain.errors()
    record = oracle.look(session)
    assert oracle.broken(record, GOLDEN, brain.acknowledged()) == []
    assert set(record.effects) == set(GOLDEN.keys)
    types = {event.seq: event.type for event in record.events}
    return Golden(record, [[types[seq] for seq, _ in each] for each in brain.transactions()])


def killed_at(session: Session, brains: Nursery, golden: Golden, boundary: Boundary) -> list[str]:
    """Kill a brain there, wake another, and say what does not hold."""
    first = brains.wake(session.home, session.session_id, Seam("append", boundary.nth, boundary.side, "kill"))
    if first.wait() != -9:
        return [f"it was not killed: {first.wait()} {first.errors()}"]
    second = brains.wake(session.home, session.session_id)
    status = second.wait()
    out = [] if status == 0 else [f"the second brain ended with {status}: {second.errors()}"]
    record = oracle.look(session)
    out += oracle.broken(record, GOLDEN, first.acknowledged() + second.acknowledged())
    return out + oracle.same_as(record, golden.record)
