"""Bugs of leases: lives of workers, fences, homes of trees, and commits without an answer."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.facts.codec import Draft, Event
from holdfast.facts.shift import ShiftEnded
from holdfast.log.base import Lease
from holdfast.log.pulse import Pulse
from holdfast.log.transaction import Transaction, ready
from holdfast.sim.leases import process as processes
from holdfast.sim.leases.database import Database
from holdfast.sim.leases.process import Process, Sandbox
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S5", "holder", first=740)
def effects_begin_for_longer_than_a_lifetime(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pulse, "is_fresh", lambda self, now_s: not self.is_new and now_s < self._sent_s + 1.5 * self.ttl_s)


@BED.plant("S5", "holder", first=130)
def a_worker_is_always_fresh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pulse, "is_fresh", lambda self, now_s: True)


@BED.plant("S5", "holder", first=100)
def a_silence_that_is_over_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    whole = Pulse.acknowledged

    def acknowledged(self: Pulse, limits: dict[str, int], sent_s: float, now_s: float) -> None:
        lapses = self.lapses
        whole(self, limits, sent_s, now_s)
        self.lapses = lapses

    patch.setattr(Pulse, "acknowledged", acknowledged)


@BED.plant("S5", "moved", first=760)
def nobody_is_wary_after_an_outage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pulse, "is_wary", lambda self, now_s: False)


@BED.plant("S5", "late", first=455)
def a_process_that_hangs_goes_on_beating(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pulse, "may_beat", lambda self, now_s: True)


@BED.plant("S5", "moved", first=1475)
def all_are_dead_when_the_database_starts(patch: pytest.MonkeyPatch) -> None:
    whole = Database.start

    def start(self: Database) -> None:
        whole(self)
        self.started_s = 0.0

    patch.setattr(Database, "start", start)


@BED.plant("S2", "shift")
def appends_are_not_fenced_by_the_epoch(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.append

    def append(self: Transaction, session_id: str, epoch: int, **named: Any) -> Any:
        row = self.row(session_id)
        assert row is not None
        return whole(self, session_id, row.epoch, **{**named, "holder": ""})

    patch.setattr(Transaction, "append", append)


@BED.plant("S5", "shift")
def an_epoch_that_was_given_twice_fences_nobody(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.append
    patch.setattr(Transaction, "append", lambda self, **named: whole(self, **{**named, "holder": ""}))


@BED.plant("S5", "moved")
def a_lease_is_taken_from_a_living_worker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Process, "lives", lambda self, session_id, holder, living: session_id in self.held)


@BED.plant("S5", "shift")
def a_release_ends_the_shift_of_another_worker(patch: pytest.MonkeyPatch) -> None:
    def release(self: Transaction, lease: Lease, ended_id: str) -> None:
        row = self.row(lease.session_id)
        if row is not None and row.holder:
            ended = Draft(ended_id, "system", ShiftEnded(status="released"))
            self._stamp(lease.session_id, row.epoch, ready(ended))

    patch.setattr(Transaction, "release", release)


@BED.plant("S9", "hands", first=950)
def hands_tell_shifts_apart_by_the_epoch_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Event, "fence", property(lambda self: self.epoch << 32))


@BED.plant("S9", "hands", first=25)
def hands_take_a_fence_below_one_they_saw(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sandbox, "_check", lambda self, number: None)


@BED.plant("S5", "holder", first=100)
def a_lease_is_not_looked_at_after_a_silence(patch: pytest.MonkeyPatch) -> None:
    async def confirm(self: Process, lease: Lease) -> None:
        return None

    patch.setattr(Process, "confirm", confirm)


@BED.plant("S5", "place", first=60)
def a_tree_leaves_a_home_that_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Database, "_may_take", lambda self, session_id, at: True)


@BED.plant("S1", "twice", first=25)
def a_commit_without_an_answer_is_made_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(processes, "same", lambda link, event: False)


@BED.plant("S5", "rest")
def what_a_lost_commit_left_held_stays_held(patch: pytest.MonkeyPatch) -> None:
    whole = Process.lives
    patch.setattr(
        Process,
        "lives",
        lambda self, session_id, holder, living: holder == self.name or whole(self, session_id, holder, living),
    )
