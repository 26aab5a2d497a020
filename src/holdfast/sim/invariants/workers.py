"""Invariants of the workers that serve a home (S27): every due session is taken up in time, by a worker that can."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

from holdfast.errors import HoldfastError, LogUnavailable, SchemaTooNew, StorageFull
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolResult
from holdfast.fleet.dispatch import FIRST_REST_S, LONGEST_REST_S, STORAGE_REST_S
from holdfast.fleet.serve import LOOK_S
from holdfast.session.rows import SessionRow, first_row, next_row
from holdfast.session.state import CLOCK_STEP_US
from holdfast.sim.process import Weathered
from holdfast.sim.record import Commit
from holdfast.sim.workers import Duty, Workers
from holdfast.sim.world import Session

SLOW_S = 12.0
"""Seconds that slow door calls add to a poll and to a session's wake."""


IDLE_MAX = 3
"""Tries of one worker that may find no work: others may have been faster, or the clock may just have moved."""


def due_is_taken_up(shop: Workers) -> Iterator[str]:
    """S27: a due session is woken within one poll plus the pauses after errors, counting only the time in which a
    worker had room.
    """
    for session in shop.world.sessions.values():
        for due_s, taken_s in _dues(shop, session):
            waited_s = shop.duty.free_s(due_s, taken_s)
            if waited_s > _bound_s(shop.duty, session.session_id):
                yield f"{session.script.name} was due at {due_s:.1f} s, {waited_s:.1f} s before it was taken up"


def _dues(shop: Workers, session: Session) -> Iterator[tuple[float, float]]:
    """Return the times at which a session was due and was taken up."""
    commits = [each for each in shop.world.record.commits if each.session_id == session.session_id]
    row: SessionRow | None = None
    for commit, after in pairwise([*commits, None]):
        assert commit is not None
        for event in commit.events:
            row = first_row(event) if row is None else next_row(row, event)
        assert row is not None
        due_s = None
        if row.due_us is not None and row.holder:
            due_s = shop.duty.deaths.get(row.holder)
        elif row.due_us is not None:
            due_s = commit.at_s + max(0.0, (row.due_us - row.updated_us) / 1_000_000)
        if due_s is None or after is None or due_s >= after.at_s:
            continue
        yield due_s, after.at_s


def _bound_s(duty: Duty, session_id: str) -> float:
    rests = [each.again_s or 0.0 for each in duty.failed if each.session_id in ("", session_id)]
    return LOOK_S + SLOW_S + max(rests, default=0.0)


def no_wait_is_longer(shop: Workers) -> Iterator[str]:
    """A sleep does not last longer than requested, however the wall clock is set, while a worker has room."""
    for session, began, ended, meant_s in _sleeps(shop):
        late_s = shop.duty.free_s(began.at_s + meant_s, ended.at_s)
        if late_s > 2 * _bound_s(shop.duty, session.session_id):
            yield f"{session.script.name} slept {ended.at_s - began.at_s:.1f} s instead of {meant_s:.0f} s"


def no_wait_is_shorter(shop: Workers) -> Iterator[str]:
    """A sleep lasts as long as requested, unless the clock is set forward or a message arrives."""
    for session, began, ended, meant_s in _sleeps(shop):
        said = any(isinstance(event.fact, UserMessage) for event in shop.world.events[session.session_id])
        if not shop.duty.forward and not said and ended.at_s - began.at_s < meant_s - CLOCK_STEP_US / 1_000_000:
            yield f"{session.script.name} slept {ended.at_s - began.at_s:.1f} s instead of {meant_s:.0f} s"


def _sleeps(shop: Workers) -> Iterator[tuple[Session, Commit, Commit, float]]:
    """Return every finished sleep: the commits of its call and its result, and the requested length."""
    calls: dict[tuple[str, str], tuple[Commit, float]] = {}
    for commit in shop.world.record.commits:
        for event in commit.events:
            match event.fact:
                case AgentToolUse(name="sleep", call_id=call_id, input=given):
                    calls[commit.session_id, call_id] = commit, float(given["seconds"])
                case ToolResult(call_id=call_id) if (commit.session_id, call_id) in calls:
                    began, meant_s = calls[commit.session_id, call_id]
                    yield shop.world.sessions[commit.session_id], began, commit, meant_s


def crews_keep_their_limit(shop: Workers) -> Iterator[str]:
    """A worker never runs more sessions at once than its `--concurrency`."""
    for busy, limit in shop.duty.crews:
        if busy > limit:
            yield f"{busy} sessions at work in a crew of {limit}"


def crews_are_used(shop: Workers) -> Iterator[str]:
    """A worker runs as many sessions at once as allowed, if as many are due."""
    busiest = max((busy for busy, _ in shop.duty.crews), default=0)
    if shop.quiet and busiest < min(shop.limit, 2) and len(shop.world.sessions) >= 4 * shop.wanted:
        yield f"{busiest} at work at most, where {shop.limit} may be and {len(shop.world.sessions)} were opened"


def workers_stay(shop: Workers) -> Iterator[str]:
    """A worker ends only when it is stopped or killed; neither a session nor the log can end it."""
    for name in shop.duty.left:
        yield f"{name} ended by itself"


def errors_are_explained(shop: Workers) -> Iterator[str]:
    """A worker meets only errors of the weather and of sessions that a newer program wrote."""
    for each in shop.duty.failed:
        if not isinstance(each.error, Weathered | SchemaTooNew):
            yield f"{each.worker} could not serve {each.session_id}: {each.error!r}"


def failures_rest(shop: Workers) -> Iterator[str]:
    """A failing session or log is retried after a pause, which has a lower and an upper bound."""
    for each in shop.duty.failed:
        if isinstance(each.error, SchemaTooNew) or each.again_s is None:
            continue
        tries = [at_s for at_s, worker, name in shop.duty.tries if (worker, name) == (each.worker, each.session_id)]
        again_s = min((at_s for at_s in tries if at_s > each.at_s), default=None)
        if again_s is not None and again_s - each.at_s < each.again_s - 0.001:
            yield f"{each.worker} tried {each.session_id} again after {again_s - each.at_s:.3f} s, not {each.again_s}"
        if not FIRST_REST_S <= each.again_s <= _longest_s(each.error):
            yield f"{each.worker} rests for {each.again_s} s"


def _longest_s(error: HoldfastError) -> float:
    """Return the longest pause after an error. It is short for storage errors, which are not the session's fault."""
    return STORAGE_REST_S if isinstance(error, LogUnavailable | StorageFull) else LONGEST_REST_S


def repeated_failures_rest_longer(shop: Workers) -> Iterator[str]:
    """The pauses after consecutive failures of a session grow."""
    for before, after in pairwise(sorted(shop.duty.failed, key=lambda each: (each.worker, each.session_id))):
        same = (before.worker, before.session_id) == (after.worker, after.session_id)
        if not same or before.again_s is None or after.again_s is None or not before.session_id:
            continue
        tries = [
            at_s
            for at_s, worker, name in shop.duty.tries
            if (worker, name) == (after.worker, after.session_id) and before.at_s < at_s <= after.at_s
        ]
        if len(tries) == 1 and after.again_s < min(_longest_s(after.error), 2 * before.again_s):
            yield f"{after.worker} rests for {after.again_s} s after {before.again_s} s"


def the_too_new_is_left(shop: Workers) -> Iterator[str]:
    """A worker tries a session that it cannot read once, and leaves it to others."""
    seen: set[tuple[str, str]] = set()
    for each in shop.duty.failed:
        if isinstance(each.error, SchemaTooNew):
            if (each.worker, each.session_id) in seen or each.again_s is not None:
                yield f"{each.worker} tries {each.session_id} again, which it cannot read"
            seen.add((each.worker, each.session_id))


def what_is_due_has_something_to_do(shop: Workers) -> Iterator[str]:
    """A worker does not repeatedly wake a session that has nothing to do: rows and folds agree on what is due."""
    for (worker, session_id, head), count in shop.duty.idle.items():
        if count > IDLE_MAX:
            yield f"{worker} took {session_id} up {count} times at {head}, and there was nothing to do"


def workers_begin_apart(shop: Workers) -> Iterator[str]:
    """Workers that start together each begin with their own share of the due sessions, unless one of these is taken."""
    names = [f"p{1 + at}" for at in range(shop.wanted)] if shop.quiet else []
    for place, name in enumerate(sorted(names)):
        share = {each for each in shop.world.sessions if zlib.crc32(each.encode()) % len(names) == place}
        mine = [(at, at_s, tried) for at, (at_s, worker, tried) in enumerate(shop.duty.tries) if worker == name]
        left = share - {tried for _, _, tried in shop.duty.tries[: mine[0][0] if mine else None]}
        # Tries at one moment may run in any order, and others may follow one that ended immediately.
        first = {tried for at, (_, at_s, tried) in enumerate(mine) if at < shop.limit or at_s == mine[0][1]}
        if left and not share & first:
            yield f"{name} began with {', '.join(sorted(first))}, and its share is {', '.join(sorted(share))}"


WORKERS: tuple[Callable[[Workers], Iterator[str]], ...] = (
    due_is_taken_up,
    no_wait_is_longer,
    no_wait_is_shorter,
    crews_keep_their_limit,
    crews_are_used,
    workers_stay,
    errors_are_explained,
    failures_rest,
    repeated_failures_rest_longer,
    the_too_new_is_left,
    what_is_due_has_something_to_do,
    workers_begin_apart,
)
