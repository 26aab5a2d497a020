"""Observations of a simulation in one total order, for the invariants.

`tick` orders all observations of a seed. `head` is the head of the session's log at that moment, so
the log as of then is `events[:head]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from holdfast.facts.codec import Event
from holdfast.facts.people import Verdict
from holdfast.hands.base import ExecRequest, ExecResult
from holdfast.model.base import ModelRequest

CommitKind = Literal["append", "post", "acquire", "release"]


@dataclass(slots=True)
class Commit:
    """Events that a transaction wrote to one session, at a virtual time. `epoch` is the writer's, 0 for posts; `head`
    is the one that a decision named. `transaction` is equal for all commits of one transaction.

    For an acquire, `held` means that the replaced holder was alive, `steal` that the caller asked to steal the lease.
    """

    tick: int
    at_s: float
    who: str
    kind: CommitKind
    session_id: str
    epoch: int
    head: int | None
    events: tuple[Event, ...]
    transaction: int = 0
    held: bool = False
    steal: bool = False


@dataclass(slots=True)
class Served:
    """Request that reached the model. `start_seq` is the latest request start that its process appended."""

    tick: int
    who: str
    session_id: str
    start_seq: int
    head: int
    request: ModelRequest


@dataclass(slots=True)
class Asked:
    """Verb that hands accepted. `shown` is the highest epoch seen before it; `alive` is True if the hands lived."""

    tick: int
    who: str
    verb: str
    session_id: str
    hands_id: str
    epoch: int
    shown: int
    alive: bool
    head: int
    call_id: str = ""
    request: ExecRequest | None = None


@dataclass(slots=True)
class Heard:
    """Result that a process received from the hands' journal."""

    tick: int
    session_id: str
    hands_id: str
    call_id: str
    result: ExecResult


Known = Literal["gone", "never_started", "running", "finished", "unknown"]


@dataclass(slots=True)
class Testimony:
    """Knowledge of the latest dispatch's hands about a call when the event at `seq` recorded it as unknown or
    dispatched it again. `gone`: they were released, or of another boot.
    """

    tick: int
    session_id: str
    seq: int
    call_id: str
    state: Known


@dataclass(slots=True)
class Effect:
    """Real effect: a command ran, or a file was written. `key` names the call."""

    tick: int
    session_id: str
    key: str
    head: int


@dataclass(slots=True)
class Said:
    """Accepted post: its text, empty unless it is a message, and its position."""

    session_id: str
    key: str
    text: str
    seq: int
    duplicate: bool


@dataclass(slots=True)
class Replied:
    """Answer of a user to an item: its position in the log, 0 if refused."""

    item_id: str
    verdict: Verdict
    seq: int


@dataclass(slots=True)
class Mishap:
    """Error that the weather does not explain."""

    tick: int
    who: str
    error: BaseException


@dataclass(slots=True)
class Delivered:
    """News of a job appended to a log, and the session's row right after it."""

    session_id: str
    seq: int
    status: str
    due_us: int | None
    now_us: int
    held: bool


@dataclass(slots=True)
class EndSaid:
    """Recorded end of a job, and its hands' knowledge of it at that moment."""

    job_id: str
    outcome: str
    state: Known


@dataclass
class Record:
    """Observations of one seed. `slept` names the processes that were frozen once."""

    commits: list[Commit] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    testimonies: list[Testimony] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    replied: list[Replied] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    ends: list[EndSaid] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)
    trace: list[tuple[float, str, str]] = field(default_factory=list)
    kills: int = 0
    zombies: int = 0
    slept: set[str] = field(default_factory=set)
    ticks: int = 0

    def tick(self) -> int:
        """Return the next number in the order of observations."""
        self.ticks += 1
        return self.ticks
