"""Homes with many sessions, made without a model: real rows and chains, many sessions in one commit."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.facts.base import Fact, Text
from holdfast.facts.codec import Draft
from holdfast.facts.people import ApprovalRequested, UserMessage
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ParkReason, ShiftEnded, ShiftStarted
from holdfast.log.base import Post
from holdfast.log.sql.tables import SqlView, write
from holdfast.log.sqlite.connect import SqliteDatabase, connect, prepare_file
from holdfast.log.transaction import Transaction, ready
from tests.support.synthetic.events import Project
from tests.support.synthetic.healthy import KINDS, healthy

TOGETHER = 250
"""Sessions in one commit."""

TALES = 200
"""Different courses of work; sessions take turns in them."""

BEGIN_US = 1_750_000_000_000_000

ENDS: tuple[tuple[str, ParkReason | None], ...] = (
    *(("done", None),) * 5,
    ("failed", None),
    ("parked", "person"),
    ("parked", "timer"),
    ("parked", "job"),
    ("cancelled", None),
)
"""Ends of ten consecutive sessions, before one in a hundred that is left runnable."""


def fill_home(database: Path, sessions: int, *, seed: int = 1, facts: int = 30) -> int:
    """Add sessions, each an hour after the one before, with a goal, a message, work, and an end.

    `facts` are the events of its work. Returns the number of all events.
    """
    project, kinds = Project(random.Random(seed)), list(KINDS)
    tales = [healthy(seed + number, kinds[number % len(kinds)], 1) for number in range(min(TALES, sessions))]
    prepare_file(database, 30.0)
    events = 0
    with closing(connect(database, 30.0)) as db:
        db.execute("pragma synchronous = off")
        for first in range(0, sessions, TOGETHER):
            db.execute("begin immediate")
            for number in range(first, min(first + TOGETHER, sessions)):
                work = [fact for told in tales[number % len(tales)].turns for _, fact in told.facts]
                events += _session(db, number, project, work[:facts])
            db.execute("commit")
    return events


def _session(db: sqlite3.Connection, number: int, project: Project, facts: list[Fact]) -> int:
    session_id = f"ses_{number:026d}"

    def draft(fact: Fact, place: int) -> Draft:
        return Draft(f"evt_{number:020d}{place:06d}", "user:ann", fact)  # type: ignore[arg-type]

    goal = f"{project.prose(6)} in {project.chance.choice(project.files)}"
    created = SessionCreated(
        goal=goal, agent=Agent(f"scripted:{project.word()}"), workspace=Workspace(f"/w/{number}"), key=f"job-{number}"
    )
    status, reason = ("parked", "person") if number % 100 == 99 else ENDS[number % 10]
    told: list[Fact] = [
        UserMessage(content=(Text(f"{project.prose(20)} {project.chance.choice(project.symbols)}"),)),
        *facts,
    ]
    if reason == "person":
        told.append(ApprovalRequested(item_id=f"itm_{number:026d}", kind="question", title=project.prose(5), action=""))
    due_us = BEGIN_US + 10**16 if reason == "timer" else None
    told.append(ShiftEnded(status=status, reason=reason, due_us=due_us))  # type: ignore[arg-type]
    shift = ShiftStarted(worker_id="wrk_gone", host_id="h", boot_id="b", pid=1, program="t")
    now = Transaction(SqlView(SqliteDatabase(db), {}), BEGIN_US + number * 3_600_000_000)
    now.post(Post(session_id, "created", draft(created, 0)), create=True)
    lease = now.acquire(session_id, draft(shift, 1), "evt_stolen", steal=False, live=lambda _: False)
    now.append(session_id, lease.epoch, [ready(draft(fact, place)) for place, fact in enumerate(told, 2)], None, ())
    write(SqliteDatabase(db), now)
    return len(told) + 2
