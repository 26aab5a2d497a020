"""A request that dies with its brain is paid for as reserved, and no death spends beyond the cap (S13, S15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.facts.model import ModelRequestEnd
from tests.faults import deaths, oracle
from tests.faults.brains import Nursery
from tests.faults.cli import finished, holdfast
from tests.faults.lanes import none_broken, verdict
from tests.faults.seams import Seam
from tests.faults.story import SHORT, TURN_PICO, open_session

TURNS = len(SHORT.script["turns"])
CAP = TURN_PICO * TURNS
"""Just enough for a run without a death."""


def test_a_request_that_died_is_paid_for_and_the_cap_holds(tmp_path: Path, brains: Nursery) -> None:
    died_in(tmp_path, brains, [1, TURNS])


@pytest.mark.faults
def test_each_request_that_died_is_paid_for_and_the_cap_holds(tmp_path: Path, brains: Nursery) -> None:
    died_in(tmp_path, brains, list(range(1, TURNS + 1)))


def died_in(base: Path, brains: Nursery, turns: list[int]) -> None:
    """Kill a brain in each of these turns, with money for a run without a death."""
    golden = deaths.undisturbed(base / "calm", brains, sandbox=True).record
    assert golden.account.spent_pico == CAP

    def run(nth: int) -> list[str]:
        session = open_session(base / str(nth), SHORT, budget_pico=CAP)
        first = brains.wake(
            session.home, session.session_id, Seam("append", nth, "before", "kill", "span.model_request_end")
        )
        out = [] if first.wait() == -9 else ["it was not killed"]
        second = brains.wake(session.home, session.session_id)
        out += [] if second.wait() == 4 else [f"{second.wait()} instead of parked: {second.errors()}"]
        parked = oracle.look(session)
        presumed = [end.cost_pico for end in parked.facts(ModelRequestEnd) if end.outcome == "presumed"]
        if parked.row.reason != "budget" or presumed != [TURN_PICO]:
            out.append(f"it stands {parked.row.status} {parked.row.reason}, presumed {presumed}")
        if parked.account.spent_pico != CAP or parked.account.reserved_pico:
            out.append(f"money: {parked.account}")
        words = ("run", "--session-id", session.session_id, "--budget", "1")
        status, _, said = finished(holdfast(session.home, *words))
        out += [] if status == 0 else [f"after more money {status}: {said}"]
        record = oracle.look(session)
        return out + oracle.broken(record, SHORT) + oracle.same_as(record, golden)

    none_broken(verdict(run, turns), "a request that died")
