"""The shared database of a simulated world: events and rows as stored, the lives of workers, and the homes of trees.

Its transactions are the real ones. The lives of workers and the homes of trees, which are SQL in a real one
(`log/sql/postgres.sql`: living, take_tree), are repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from holdfast.errors import LeaseHeld
from holdfast.facts.codec import Draft, Event
from holdfast.log.base import Lease, Post
from holdfast.log.memory import Tables
from holdfast.log.transaction import Transaction
from holdfast.session.rows import is_due

T = TypeVar("T")

TTL_S = 8.0
"""Lifetime of a worker without a beat."""

START_US = 1_795_000_000_000_000


@dataclass(frozen=True)
class Row:
    """A worker's row: its home, and its latest beat by the clock of the database."""

    place: str
    beat_s: float


@dataclass(frozen=True)
class Commit:
    """A transaction that wrote, when, by which worker, and the state of the other tables after it."""

    at_s: float
    worker: str
    done: Transaction
    trees: dict[str, str]
    workers: dict[str, Row]

    @property
    def last(self) -> Event:
        """Its last event."""
        return self.done.sealed[-1].event


class Seat(Protocol):
    """A worker as the database's client: what it knows by itself."""

    place: str

    @property
    def is_wary(self) -> bool:
        """See `Pulse.is_wary`."""
        ...

    def lives(self, session_id: str, holder: str, living: Mapping[str, str]) -> bool:
        """Return True if a session's holder lives, by the rows of those that do and by what the kernel says here."""
        ...


class Database:
    """One database with a clock of its own. `time` is the true time, which no process of the world can read."""

    def __init__(self, time: Callable[[], float], rate: float) -> None:
        self.time = time
        self._rate = rate
        self.tables = Tables()
        self.commits: list[Commit] = []
        self.lost: list[Commit] = []
        self.trees: dict[str, str] = {}
        self.workers: dict[str, Row] = {}
        self.up = True
        self.started_s = 0.0
        self.starts = 0
        self.losses_s: list[float] = []

    def now_s(self) -> float:
        """The time by its own clock, which may run faster or slower than others."""
        return self.time() * self._rate

    def living(self, *, wary: bool = False) -> dict[str, str]:
        """Return the workers that may live, with their homes. None is dead within a lifetime of the start."""
        return {
            name: row.place
            for name, row in self.workers.items()
            if wary or self.now_s() < max(row.beat_s, self.started_s) + TTL_S
        }

    def run(self, worker: str, work: Callable[[Transaction], T]) -> tuple[T, Commit | None]:
        """Run a transaction, and commit what it wrote."""
        done = Transaction(self.tables, START_US + int(self.now_s() * 1e6))
        result = work(done)
        if not done.sealed:
            return result, None
        self.tables.write(done)
        commit = Commit(self.time(), worker, done, dict(self.trees), dict(self.workers))
        self.commits.append(commit)
        return result, commit

    def beat(self, worker: str, place: str) -> None:
        """Take a beat."""
        self.workers[worker] = Row(place, self.now_s())

    def post(self, post: Post, *, create: bool = False) -> None:
        """Take a post of a user; a new session has no home yet."""
        if create:
            self.trees[post.session_id] = ""
        self.run("", lambda now: now.post(post, create=create))

    def due(self, at: Seat) -> list[str]:
        """Return the due sessions that a worker can run."""
        living, now_us = self.living(wary=at.is_wary), START_US + int(self.now_s() * 1e6)
        return sorted(
            row.session_id
            for row in self.tables.rows.values()
            if is_due(row, now_us)
            and not at.lives(row.session_id, row.holder, living)
            and self._may_take(row.session_id, at)
        )

    def acquire(self, now: Transaction, session_id: str, draft: Draft, at: Seat) -> Lease:
        """Take a session's lease and make the worker's home that of its tree. Raises `LeaseHeld`."""
        living = self.living(wary=at.is_wary)
        live = partial(at.lives, session_id, living=living)
        lease = now.acquire(session_id, draft, f"{draft.id}s", steal=False, live=live)
        if not self._may_take(session_id, at):
            raise LeaseHeld("it is at another home", worker_id="")
        self.trees[session_id] = at.place
        return lease

    def _may_take(self, session_id: str, at: Seat) -> bool:
        home = self.trees[session_id]
        return home in ("", at.place) or home not in self.living(wary=at.is_wary).values()

    def start(self) -> None:
        """Start again. No worker is dead within a lifetime from now on."""
        self.up, self.started_s, self.starts = True, self.now_s(), self.starts + 1

    def promote(self, lose: int) -> None:
        """Go on as a standby, which ran before, and may lack the latest commits."""
        self.up, self.starts = True, self.starts + 1
        opened = next((n for n, each in enumerate(self.commits) if each.worker), len(self.commits))
        kept = max(opened, len(self.commits) - lose)
        if kept == len(self.commits):
            return
        self.losses_s.append(self.time())
        self.lost += self.commits[kept:]
        del self.commits[kept:]
        self.tables = Tables()
        for each in self.commits:
            self.tables.write(each.done)
        self.trees, self.workers = dict(self.commits[-1].trees), dict(self.commits[-1].workers)
