"""Bugs in the log: its transaction, its ledger, its leases, its rows, its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import HeadMoved
from holdfast.facts.base import Fact
from holdfast.facts.codec import Draft, Event, chain
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.people import UserMessage
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.log import transaction
from holdfast.log.base import Lease, Post, Snapshot
from holdfast.log.ledger import Ledger
from holdfast.log.memory import MemoryStore
from holdfast.log.transaction import Ready, Transaction, ready
from holdfast.session import money, rows
from holdfast.session.money import Reserve, Settle
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S5", "stale_writers_are_refused")
def stale_writers_are_let_in(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.append

    def append(
        self: Transaction,
        session_id: str,
        epoch: int,
        drafts: Sequence[Ready],
        head: int | None,
        posts: Sequence[Post],
        holder: str = "",
    ) -> list[Event]:
        row = self.row(session_id)
        assert row is not None
        return whole(self, session_id, row.epoch, drafts, head, posts)

    patch.setattr(Transaction, "append", append)


@BED.plant("S5", "stale_writers_are_refused")
def a_steal_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.acquire

    def acquire(
        self: Transaction,
        session_id: str,
        draft: Draft,
        stolen_id: str,
        *,
        steal: bool,
        live: Callable[[str], bool],
        head: int | None = None,
    ) -> Lease:
        row = self.row(session_id)
        if row is not None and row.epoch and row.holder and live(row.holder) and steal:
            event = self._stamp(session_id, row.epoch, ready(draft))
            assert isinstance(draft.fact, ShiftStarted)
            return Lease(session_id, row.epoch, draft.fact.worker_id, (event,))
        return whole(self, session_id, draft, stolen_id, steal=steal, live=live, head=head)

    patch.setattr(Transaction, "acquire", acquire)


@BED.plant("S5", "leases_exclude")
def a_steal_is_not_logged(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._stamp

    def stamp(self: Transaction, session_id: str, epoch: int, given: Ready, key: str = "") -> Any:
        if isinstance(given.fact, LeaseStolen):
            row = self.row(session_id)
            assert row is not None
            return Event(session_id, row.head, epoch, 0, b"", "", "", "lease.stolen", given.fact)
        return whole(self, session_id, epoch, given, key)

    patch.setattr(Transaction, "_stamp", stamp)


@BED.plant("S5", "leases_exclude")
def a_living_holder_is_taken_for_dead(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.acquire

    def acquire(self: Transaction, *args: Any, live: Callable[[str], bool], **more: Any) -> Lease:
        return whole(self, *args, live=lambda worker_id: False, **more)

    patch.setattr(Transaction, "acquire", acquire)


@BED.plant("S5", "stale_writers_are_refused")
def a_release_ends_the_shift_of_another(patch: pytest.MonkeyPatch) -> None:
    def release(self: Transaction, lease: Lease, ended_id: str) -> None:
        row = self.row(lease.session_id)
        if row is not None and row.holder:
            ended = Draft(ended_id, "system", ShiftEnded(status="released"))
            self._stamp(lease.session_id, row.epoch, ready(ended))

    patch.setattr(Transaction, "release", release)


@BED.plant("S2", "decisions_name_the_head")
def the_head_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.append

    def append(
        self: Transaction, session_id: str, epoch: int, drafts: Sequence[Ready], head: int | None, *more: Any
    ) -> list[Event]:
        return whole(self, session_id, epoch, drafts, None, *more)

    patch.setattr(Transaction, "append", append)


@BED.plant("S2", "no_shift_for_nothing")
def a_lease_is_taken_whatever_was_folded(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.acquire

    def acquire(self: Transaction, *args: Any, head: int | None = None, **more: Any) -> Lease:
        return whole(self, *args, **more)

    patch.setattr(Transaction, "acquire", acquire)


@BED.plant("S3", "posts_stand_once")
def a_post_is_taken_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "_posted", lambda self, post: None)


@BED.plant("S3", "posts_stand_once")
def a_second_message_is_taken_for_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._posted

    def posted(self: Transaction, post: Post) -> int | None:
        row = self.row(post.session_id)
        said = isinstance(post.draft.fact, UserMessage)
        return row.head if said and row is not None and row.head > 20 else whole(self, post)

    patch.setattr(Transaction, "_posted", posted)


@BED.plant("S1", "acknowledged_is_kept", first=9)
def an_acknowledged_post_is_not_written(patch: pytest.MonkeyPatch) -> None:
    whole = MemoryStore._commit

    def commit(self: MemoryStore, done: Transaction) -> None:
        if not (done.posts and done.sealed[0].event.seq > 15):
            whole(self, done)

    patch.setattr(MemoryStore, "_commit", commit)


@BED.plant("S1", "chain_holds")
def the_chain_forgets_what_came_before(patch: pytest.MonkeyPatch) -> None:
    def loose(prev: bytes, *args: Any) -> bytes:
        return chain(bytes(32), *args)

    patch.setattr(transaction, "chain", loose)


@BED.plant("S1", "chain_holds")
def the_chain_leaves_out_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def loose(prev: bytes, session_id: str, seq: int, epoch: int, *args: Any) -> bytes:
        return chain(prev, session_id, seq, 0, *args)

    patch.setattr(transaction, "chain", loose)


@BED.plant("S4", "acknowledged_is_kept")
def a_refused_append_is_written_all_the_same(patch: pytest.MonkeyPatch) -> None:
    async def append(
        self: MemoryStore,
        session_id: str,
        epoch: int,
        drafts: Sequence[Draft],
        *,
        head: int | None = None,
        posts: Any = (),
        holder: str = "",
    ) -> list[Event]:
        done = await self._begin()
        whole = [ready(draft) for draft in drafts]
        try:
            return done.append(session_id, epoch, whole, head, posts)
        except HeadMoved:
            done.append(session_id, epoch, whole[:1], None, posts)
            raise
        finally:
            self._commit(done)

    patch.setattr(MemoryStore, "append", append)


@BED.plant("S4", "calls_are_named_by_place")
def a_batch_is_cut_short(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.append

    def append(self: Transaction, session_id: str, epoch: int, drafts: Sequence[Ready], *more: Any) -> list[Event]:
        kept = drafts[1:] if len(drafts) > 3 else drafts
        return whole(self, session_id, epoch, kept, *more)

    patch.setattr(Transaction, "append", append)


def _changing(patch: pytest.MonkeyPatch, change: Callable[[rows.SessionRow, Event], dict[str, object] | None]) -> None:
    whole = rows._changes

    def changes(row: rows.SessionRow, event: Event) -> dict[str, object]:
        other = change(row, event)
        return whole(row, event) if other is None else other

    patch.setattr(rows, "_changes", changes)


@BED.plant("S20", "calls_end_once", first=49)
def a_result_clears_the_wake(patch: pytest.MonkeyPatch) -> None:
    _changing(patch, lambda row, event: {"due_us": None} if isinstance(event.fact, ToolResult) else None)


@BED.plant("S27", "all_is_at_rest")
def a_message_does_not_make_a_session_due(patch: pytest.MonkeyPatch) -> None:
    _changing(patch, lambda row, event: {} if isinstance(event.fact, UserMessage) else None)


@BED.plant("S27", "calls_end_once")
def a_released_session_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def change(row: rows.SessionRow, event: Event) -> dict[str, object] | None:
        released = isinstance(event.fact, ShiftEnded) and event.fact.status == "released"
        return {"holder": "", "status": "runnable", "due_us": None} if released else None

    _changing(patch, change)


@BED.plant("S27", "all_is_at_rest")
def a_timer_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def change(row: rows.SessionRow, event: Event) -> dict[str, object] | None:
        timed = isinstance(event.fact, ShiftEnded) and event.fact.due_us is not None
        return {"holder": "", "status": "parked", "reason": "provider", "due_us": None} if timed else None

    _changing(patch, change)


@BED.plant("S20", "rows_follow")
def failed_turns_are_counted(patch: pytest.MonkeyPatch) -> None:
    whole = rows._changes

    def changes(row: rows.SessionRow, event: Event) -> dict[str, object]:
        changed = whole(row, event)
        return {**changed, "turns": row.turns + 1} if "turns" in changed else changed

    patch.setattr(rows, "_changes", changes)


@BED.plant("S19", "nothing_unexplained", first=67)
def a_snapshot_of_another_log_is_taken(patch: pytest.MonkeyPatch) -> None:
    async def load(self: MemoryStore, session_id: str, fold_digest: str) -> Snapshot | None:
        kept = self._snapshots.get(session_id)
        return kept if kept is not None and kept.fold_digest == fold_digest else None

    patch.setattr(MemoryStore, "load", load)


@BED.plant("S19", "nothing_unexplained", first=66)
def a_snapshot_of_another_program_is_taken(patch: pytest.MonkeyPatch) -> None:
    whole = MemoryStore.load

    async def load(self: MemoryStore, session_id: str, fold_digest: str) -> Snapshot | None:
        kept = self._snapshots.get(session_id)
        return await whole(self, session_id, kept.fold_digest if kept is not None else fold_digest)

    patch.setattr(MemoryStore, "load", load)


def _moving(patch: pytest.MonkeyPatch, change: Callable[[Fact, Any], Any]) -> None:
    whole = money.move
    patch.setattr(money, "move", lambda fact, seq, path, at_us: change(fact, whole(fact, seq, path, at_us)))


@BED.plant("S15", "spend_stays_under_the_cap")
def a_failed_request_keeps_its_reservation(patch: pytest.MonkeyPatch) -> None:
    def change(fact: Fact, move: Any) -> Any:
        return () if isinstance(fact, ModelRequestEnd) and fact.outcome == "error" else move

    _moving(patch, change)


@BED.plant("S15", "spend_stays_under_the_cap")
def a_budget_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def reserve(self: Ledger, session_id: str, move: Reserve) -> None:
        for account in map(self._need, move.path):
            self._keep(replace(account, reserved_pico=account.reserved_pico + move.amount_pico))
        self.reservations[session_id, move.seq] = move.amount_pico

    patch.setattr(Ledger, "_reserve", reserve)


@BED.plant("S15", "spend_stays_under_the_cap")
def what_is_spent_is_left_out_of_the_check(patch: pytest.MonkeyPatch) -> None:
    whole = Ledger._reserve

    def reserve(self: Ledger, session_id: str, move: Reserve) -> None:
        real = {name: self._need(name) for name in move.path}
        for name, account in real.items():
            self.accounts[name] = replace(account, spent_pico=0)
        whole(self, session_id, move)
        for name, account in real.items():
            self.accounts[name] = replace(self.accounts[name], spent_pico=account.spent_pico)

    patch.setattr(Ledger, "_reserve", reserve)


@BED.plant("S15", "rows_follow", first=16)
def only_the_own_account_pays(patch: pytest.MonkeyPatch) -> None:
    whole = Ledger._settle

    def settle(self: Ledger, session_id: str, move: Settle) -> None:
        whole(self, session_id, replace(move, path=move.path[:1]))

    patch.setattr(Ledger, "_settle", settle)
