"""The oracle: every invariant that a finished world is judged by, in one catalogue.

An invariant is a function that yields a sentence for each thing that does not hold. Its docstring names
the rule that it stands for. They read the stored log and what the simulator observed, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from holdfast.sim.invariants import calls as invariants_calls
from holdfast.sim.invariants import context as invariants_context
from holdfast.sim.invariants import family as invariants_family
from holdfast.sim.invariants import jobs as invariants_jobs
from holdfast.sim.invariants import log as invariants_log
from holdfast.sim.invariants import money as invariants_money
from holdfast.sim.invariants import people as invariants_people
from holdfast.sim.invariants import rest as invariants_rest
from holdfast.sim.invariants import workers as invariants_workers
from holdfast.sim.invariants.history import History
from holdfast.sim.workers import Workers
from holdfast.sim.world import World

OfSession = Callable[[History], Iterator[str]]
OfWorld = Callable[[World], Iterator[str]]

OF_SESSION: tuple[OfSession, ...] = (
    *invariants_log.ALL,
    *invariants_calls.ALL,
    *invariants_context.ALL,
    *invariants_money.ALL,
    *invariants_rest.ALL,
    *invariants_people.ALL,
    *invariants_family.ALL,
)
OF_WORLD: tuple[OfWorld, ...] = (
    *invariants_rest.WORLD,
    *invariants_money.WORLD,
    *invariants_people.WORLD,
    *invariants_family.WORLD,
)


Subject = TypeVar("Subject", World, History, Workers)


@dataclass(frozen=True)
class Violation:
    """Something that does not hold: the invariant's name and a sentence."""

    invariant: str
    message: str


OF_JOBS: tuple[OfWorld, ...] = invariants_jobs.WORLD
"""What worlds of long commands are judged by, beside the invariants of logs."""


def judge_jobs(world: World, only: str = "") -> list[Violation]:
    """Everything that does not hold in a world of long commands."""
    found: list[Violation] = []
    for of_world in (*OF_JOBS, invariants_rest.nothing_unexplained):
        if only in ("", of_world.__name__):
            found += _found(of_world, world)
    return found


def judge_workers(shop: Workers, only: str = "") -> list[Violation]:
    """Everything that does not hold of the workers of a world."""
    found: list[Violation] = []
    for of_workers in invariants_workers.WORKERS:
        if only in ("", of_workers.__name__):
            found += _found(of_workers, shop)
    return found


def judge(world: World, only: str = "") -> list[Violation]:
    """Everything that does not hold in a world that has come to rest; with `only`, by that invariant alone."""
    found: list[Violation] = []
    for of_world in OF_WORLD:
        if only in ("", of_world.__name__):
            found += _found(of_world, world)
    of_sessions = [each for each in OF_SESSION if only in ("", each.__name__)]
    for session in world.sessions.values() if of_sessions else ():
        history = History(world, session)
        for of_session in of_sessions:
            found += _found(of_session, history)
    return found


def _found(invariant: Callable[[Subject], Iterator[str]], subject: Subject) -> list[Violation]:
    """What one invariant finds. A log that it cannot even read does not hold either."""
    name = invariant.__name__
    try:
        return [Violation(name, message) for message in invariant(subject)]
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        return [Violation(name, f"the log makes no sense here: {error!r}")]
