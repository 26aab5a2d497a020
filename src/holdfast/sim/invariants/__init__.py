"""Oracle: the catalog of invariants that judge a finished world.

An invariant is a function that yields a sentence for each violation. Its docstring names its rule. Invariants read only
the stored log and the simulator's observations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from holdfast.sim.invariants import calls, children, context, log, people, rest, workers
from holdfast.sim.invariants.history import History
from holdfast.sim.workers import Workers
from holdfast.sim.world import World

OfSession = Callable[[History], Iterator[str]]
OfWorld = Callable[[World], Iterator[str]]

OF_SESSION: tuple[OfSession, ...] = (
    *log.ALL,
    *calls.ALL,
    *context.ALL,
    *log.MONEY,
    *rest.ALL,
    *people.ALL,
    *children.ALL,
)
OF_WORLD: tuple[OfWorld, ...] = (
    *rest.WORLD,
    *log.ACCOUNTS,
    *people.WORLD,
    *children.WORLD,
)


Subject = TypeVar("Subject", World, History, Workers)


@dataclass(frozen=True)
class Violation:
    """Violation of an invariant: its name and a sentence."""

    invariant: str
    message: str


OF_JOBS: tuple[OfWorld, ...] = children.JOBS
"""Invariants of worlds of jobs."""


def judge_jobs(world: World, only: str = "") -> list[Violation]:
    """Return violations in a world of jobs."""
    found: list[Violation] = []
    for of_world in (*OF_JOBS, rest.nothing_unexplained):
        if only in ("", of_world.__name__):
            found += _found(of_world, world)
    return found


def judge_workers(shop: Workers, only: str = "") -> list[Violation]:
    """Return violations by the workers of a world."""
    found: list[Violation] = []
    for of_workers in workers.WORKERS:
        if only in ("", of_workers.__name__):
            found += _found(of_workers, shop)
    return found


def judge(world: World, only: str = "") -> list[Violation]:
    """Return violations in a world after the calm, with `only` of that invariant alone."""
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
    """Return violations of one invariant. A log that it cannot read is a violation too."""
    name = invariant.__name__
    try:
        return [Violation(name, message) for message in invariant(subject)]
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        return [Violation(name, f"the log makes no sense here: {error!r}")]
