"""Rules that judge a finished world of leases: each yields a sentence for a violation, which begins with its name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.sim.leases.database import TTL_S
from holdfast.sim.leases.process import SETTLED_S, Process
from holdfast.sim.leases.world import World

LATE_S = 2.6 * TTL_S
"""Time within which a silent worker's sessions are taken: two lifetimes by the slowest clock, and looks."""


def judge(world: World) -> list[str]:
    """Return all violations."""
    rules = (one_holder, one_shift, nothing_lost, no_needless_takeover, no_late_takeover)
    return [*world.wrong, *(each for rule in rules for each in rule(world))]


def one_holder(world: World) -> Iterator[str]:
    """No effect begins after another worker took the session (S5).

    A process that was stopped between its last look at the lease and the effect cannot know; hands of its own home
    refuse it then, and those of another one cannot. A standby that lacks commits may lack a worker's row, until that
    beats again.
    """
    takes = [commit for commit in world.database.commits if isinstance(commit.last.fact, ShiftStarted)]
    for effect in world.effects:
        began = effect.lease.events[-1]
        own = next((each for each in (*takes, *world.database.lost) if each.last.hash == began.hash), None)
        assert own is not None
        for take in takes:
            other = take.last.session_id == effect.session_id and take.worker != effect.lease.worker_id
            loses = any(take.at_s - TTL_S < at_s <= take.at_s for at_s in world.database.losses_s)
            if other and not loses and own.at_s < take.at_s < effect.at_s and not effect.stops:
                yield (
                    f"holder: {effect.lease.worker_id} began an effect of {effect.session_id} at {effect.at_s:.3f}, "
                    f"which {take.worker} took at {take.at_s:.3f}"
                )


def one_shift(world: World) -> Iterator[str]:
    """Epochs of a session's shifts rise, and each event was appended by the worker of its shift (S2, S5)."""
    by = {sealed.event.hash: commit.worker for commit in world.database.commits for sealed in commit.done.sealed}
    for session_id, events in world.database.tables.events.items():
        epoch, holder = 0, ""
        for event in events:
            if isinstance(event.fact, ShiftStarted):
                if event.epoch <= epoch:
                    yield f"epoch: {session_id} has epoch {event.epoch} after {epoch} at {event.seq}"
                epoch, holder = event.epoch, event.fact.worker_id
            worker = by[event.hash]
            if worker and worker != holder:
                yield f"shift: {worker} appended {event.seq} to {session_id} in the shift of {holder}"


def nothing_lost(world: World) -> Iterator[str]:
    """Acknowledged events are in the log once, unless the database itself lost them (S1)."""
    lost = {sealed.event.hash for commit in world.database.lost for sealed in commit.done.sealed}
    stored = [event for events in world.database.tables.events.values() for event in events]
    hashes, ids = {event.hash for event in stored}, [event.id for event in stored]
    for event in world.acknowledged:
        if event.hash not in hashes and event.hash not in lost:
            yield f"lost: event {event.seq} of {event.session_id} was acknowledged"
    if len(ids) != len(set(ids)):
        yield f"twice: {sorted(each for each in set(ids) if ids.count(each) > 1)[:3]} are in the log twice"


def no_needless_takeover(world: World) -> Iterator[str]:
    """A session is taken only from a worker that had some trouble, and its tree only from a home that had (S5)."""
    processes = {process.name: process for process in world.processes}
    commits = world.database.commits
    for before, take in pairwise(commits):
        session_id = take.last.session_id
        row = take.done.before.get(session_id)
        if not isinstance(take.last.fact, ShiftStarted) or row is None:
            continue
        taker, holder, home = processes[take.worker], processes.get(row.holder), before.trees[session_id]
        if holder is not None and holder.name in before.workers and _surely_lives(holder, taker, take.at_s):
            yield f"moved: {taker.name} took {session_id} at {take.at_s:.1f} from {holder.name}, which lived"
        for mate in world.processes:
            known = mate.name in before.workers  # a standby may lack its row
            if known and mate.place == home != taker.place and _surely_lives(mate, taker, take.at_s):
                yield f"place: {taker.name} took {session_id} at {take.at_s:.1f} from {home}, where {mate.name} lived"


def no_late_takeover(world: World) -> Iterator[str]:
    """Sessions of a silent worker are taken within two lifetimes, if another one can have them (S5)."""
    all_ = sorted((*world.database.commits, *world.database.lost), key=lambda commit: commit.at_s)
    for process in world.processes:
        for trouble in process.troubles:
            until_s = trouble.from_s + LATE_S
            if not trouble.alone or trouble.until_s < until_s or world.calm_s < until_s:
                continue
            calm = [
                mate
                for mate in world.processes
                if mate.place == process.place and mate is not process and mate.began_s < trouble.from_s - TTL_S
                if not any(each.from_s < until_s and each.until_s > trouble.from_s - TTL_S for each in mate.troubles)
            ]
            if not calm:
                continue
            for session_id in trouble.held:
                mine = [commit for commit in all_ if commit.last.session_id == session_id]
                last = [each for each in mine if each.at_s < until_s and each.worker]
                if last and last[-1].at_s < trouble.from_s and not isinstance(last[-1].last.fact, ShiftEnded):
                    yield f"late: {session_id} of {process.name}, silent since {trouble.from_s:.1f}, is not taken over"


def _surely_lives(process: Process, taker: Process, at_s: float) -> bool:
    """Return True if nothing can make a worker look dead to another one at that time.

    After a shared trouble all who had it wait for each other.
    """
    if process is taker or process.began_s > at_s - SETTLED_S:
        return False
    recent = [each for each in process.troubles if each.from_s <= at_s and each.until_s > at_s - SETTLED_S]
    last_s = max((each.until_s for each in recent), default=0.0)
    waits = all(each.shared and each.from_s > taker.began_s + TTL_S for each in recent) and not [
        each for each in taker.troubles if not each.shared and each.until_s > at_s - SETTLED_S and each.from_s <= at_s
    ]
    return not recent or (waits and last_s <= at_s < last_s + TTL_S / 2)
