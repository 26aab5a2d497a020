"""Workers that serve one home, simulated: the code holds, and each invariant notices planted bugs."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.app.cli import main
from holdfast.brain import wake as wake_module
from holdfast.errors import EmergencyStop, HoldfastError, LeaseHeld, NeedsProgram
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalSeen
from holdfast.facts.shift import ClockSet, ShiftEnded, ShiftStarted
from holdfast.fleet import serve
from holdfast.fleet.dispatch import Crew
from holdfast.fleet.serve import Service, Share
from holdfast.log import memory
from holdfast.session import decide
from holdfast.session.fold import clock as fold_clock
from holdfast.session.rows import SessionRow, Uptime, due_at
from holdfast.session.state import SetBack, State
from holdfast.sim.invariants.workers import WORKERS
from holdfast.sim.run import run_seeds, run_workers
from tests.sim.planted.kit import Bed, Plant, hunt

CLEAN = 20
FOUND = (203_808, 43_101_509, 51_001_000)
"""Seeds outside the sweeps that once broke an invariant."""

WITHIN = 120

BED = Bed()
plant = partial(BED.plant, "")


def test_no_invariant_is_violated() -> None:
    totals = run_seeds(range(CLEAN), run_workers)
    if totals.failing is not None:
        pytest.fail(totals.failing.report())
    assert totals.seeds == CLEAN
    assert min(totals.posts, totals.effects) >= CLEAN


def test_seeds_that_once_broke_an_invariant_are_clean() -> None:
    totals = run_seeds(FOUND, run_workers)
    if totals.failing is not None:
        pytest.fail(totals.failing.report())


@pytest.mark.faults
def test_no_invariant_is_violated_in_many_worlds() -> None:
    totals = run_seeds(range(200_000, 205_000), run_workers)
    if totals.failing is not None:
        pytest.fail(totals.failing.report())


def test_a_seed_is_one_world() -> None:
    assert run_workers(7) == run_workers(7)


def test_the_command_runs_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--workers", "--seeds", "2"]) == 0
    assert "2 seeds" in capsys.readouterr().out


@plant("due_is_taken_up", first=1)
def a_wait_is_over_by_the_wall_clock_alone(patch: pytest.MonkeyPatch) -> None:
    def is_due(row: SessionRow, now_us: int, up: Uptime | None = None) -> bool:
        at_us = due_at(row, now_us)
        return at_us is not None and at_us <= now_us

    patch.setattr(memory, "is_due", is_due)


@plant("due_is_taken_up", first=6)
def what_can_run_waits_for_its_time(patch: pytest.MonkeyPatch) -> None:
    def is_due(row: SessionRow, now_us: int, up: Uptime | None = None) -> bool:
        return row.due_us is not None and row.due_us <= now_us

    patch.setattr(memory, "is_due", is_due)


@plant("due_is_taken_up")
def nobody_looks_until_the_log_moves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(serve, "LOOK_S", 900.0)

    async def never(store: Any, now_us: int, up: Uptime | None = None) -> None:
        return None

    patch.setattr(memory.MemoryStore, "next_due", never)


@plant("due_is_taken_up", first=117)
def what_finds_no_room_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    whole = Crew.start

    def start(crew: Crew, due: Collection[str]) -> None:
        whole(crew, due)
        crew._left |= set(due) - crew.running

    patch.setattr(Crew, "start", start)


@plant("no_wait_is_longer", first=82)
def a_brain_does_not_see_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wake_module, "was_set", lambda *_: False)
    patch.setattr(fold_clock, "passed", lambda *_: None)


@plant("no_wait_is_longer", first=42)
def the_fold_does_not_see_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold_clock, "stood", lambda *_: None)
    patch.setattr(fold_clock, "passed", lambda *_: None)
    patch.setattr(wake_module, "was_set", lambda *_: False)


@plant("no_wait_is_shorter")
def a_jump_counts_twice(patch: pytest.MonkeyPatch) -> None:
    def stood(state: State, fact: ClockSet | ShiftStarted | ShiftEnded | ApprovalSeen, event: Event) -> None:
        boot_id, booted_us = fact.boot_id, fact.booted_us
        if boot_id and booted_us:
            if fold_clock.went_back(state, boot_id, booted_us):
                state.set_back.append(SetBack(event.seq, state.booted_us - booted_us, event.at_us))
            state.boot_id, state.booted_us, state.clock_seq = boot_id, booted_us, event.seq

    patch.setattr(fold_clock, "stood", stood)


@plant("what_is_due_has_something_to_do", first=1)
def rows_and_folds_disagree_about_the_uptime(patch: pytest.MonkeyPatch) -> None:
    whole = decide.is_idle
    patch.setattr(wake_module, "is_idle", lambda state, now_us, up=None: whole(state, now_us))


@plant("comes_to_rest", first=89)
def who_fails_once_is_left_for_good(patch: pytest.MonkeyPatch) -> None:
    def after(crew: Crew, session_id: str, error: HoldfastError) -> None:
        crew._left.add(session_id)

    patch.setattr(Crew, "_after", after)


@plant("crews_keep_their_limit")
def a_crew_is_never_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Crew, "full", property(lambda crew: False))


@plant("crews_are_used", first=2)
def one_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Crew, "full", property(lambda crew: bool(crew.running)))


@plant("workers_stay", first=3)
def a_log_in_trouble_ends_the_worker(patch: pytest.MonkeyPatch) -> None:
    whole = Service._look

    async def look(service: Service, crew: Crew) -> float:
        def raises(session_id: str, error: HoldfastError, again_s: float | None) -> None:
            if not session_id:
                raise error

        service._on_error = raises
        return await whole(service, crew)

    patch.setattr(Service, "_look", look)


@plant("workers_stay", first=3)
def an_error_of_one_session_ends_the_worker(patch: pytest.MonkeyPatch) -> None:
    async def work(crew: Crew, session_id: str) -> None:
        try:
            await crew._handler(session_id)
        except LeaseHeld:
            crew._rest(session_id, 1.0, failures=0)
        finally:
            crew.running.discard(session_id)
            crew.stir()

    patch.setattr(Crew, "_work", work)


async def undivided(share: Share, due: list[str]) -> tuple[list[str], list[str]]:
    """A share that is everything."""
    return due, []


@plant("errors_are_explained", first=1)
def a_held_session_is_an_error(patch: pytest.MonkeyPatch) -> None:
    async def work(crew: Crew, session_id: str) -> None:
        try:
            await crew._handler(session_id)
        except HoldfastError as error:
            assert crew._on_error is not None
            crew._on_error(session_id, error, crew._after(session_id, error))
        finally:
            crew.running.discard(session_id)
            crew.stir()

    patch.setattr(Crew, "_work", work)
    patch.setattr(Share, "split", undivided)


@plant("failures_rest", first=9)
def who_failed_is_tried_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Crew, "_rests_now", lambda crew, session_id: False)


@plant("repeated_failures_rest_longer", first=67)
def pauses_do_not_grow(patch: pytest.MonkeyPatch) -> None:
    whole = Crew._after

    def after(crew: Crew, session_id: str, error: HoldfastError) -> float | None:
        crew._rests.pop(session_id, None)
        return whole(crew, session_id, error)

    patch.setattr(Crew, "_after", after)


@plant("the_too_new_is_left", first=21)
def what_is_too_new_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    def after(crew: Crew, session_id: str, error: HoldfastError) -> float | None:
        if isinstance(error, NeedsProgram | EmergencyStop):
            return None
        crew._rest(session_id, 1.0, 1)
        return 1.0

    patch.setattr(Crew, "_after", after)


@plant("workers_begin_apart", first=4)
def all_workers_begin_at_the_top(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Share, "split", undivided)


def test_every_invariant_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for each in WORKERS:
        assert f"| `{each.__name__}` | {' '.join((each.__doc__ or '').split())} |" in page


def test_every_invariant_has_a_planted_bug() -> None:
    assert {plant.invariant for plant in BED.plants} == {*(each.__name__ for each in WORKERS), "comes_to_rest"}


@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    assert hunt(plant, range(WITHIN), run_workers) is not None, f"{plant.invariant} notices nothing"
