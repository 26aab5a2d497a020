"""What the simulator saw: observations in one order, for the invariants to judge afterwards.

`tick` orders all observations of a seed. `head` is the head of the session's log at that moment, so
the log as it was then is `events[:head]`.
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
    """What a transaction wrote into one session, at a virtual time. `epoch` is the writer's, 0 for posts; `head`
    what a decision named. `transaction` is the same for all that one transaction wrote.

    For an acquire, `held` says that the holder it replaced was alive, `steal` that it was asked to take it.
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
    """A request that reached the model. `start_seq` is the start that its process appended last."""

    tick: int
    who: str
    session_id: str
    start_seq: int
    head: int
    request: ModelRequest


@dataclass(slots=True)
class Asked:
    """A verb that hands accepted. `shown` is the highest epoch that they had been shown before it, `alive`
    whether they lived.
    """

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
    """A result that hands gave to somebody, from their journal."""

    tick: int
    session_id: str
    hands_id: str
    call_id: str
    result: ExecResult


Known = Literal["gone", "never_started", "running", "finished", "unknown"]


@dataclass(slots=True)
class Testimony:
    """What the hands of the latest dispatch could say of a call at the moment when the event at `seq` told
    it as unknown or dispatched it again. `gone`: they were released, or of another boot.
    """

    tick: int
    session_id: str
    seq: int
    call_id: str
    state: Known


@dataclass(slots=True)
class Effect:
    """Something really happened outside: a command ran, or a file was written. `key` names the call."""

    tick: int
    session_id: str
    key: str
    head: int


@dataclass(slots=True)
class Said:
    """A post that was accepted: its text (empty for what is no message), and where it stands."""

    session_id: str
    key: str
    text: str
    seq: int
    duplicate: bool


@dataclass(slots=True)
class Replied:
    """What came of a person's answer to an item: the position that it has now, 0 when it was refused."""

    item_id: str
    verdict: Verdict
    seq: int


@dataclass(slots=True)
class Mishap:
    """An error that nothing in this world explains."""

    tick: int
    who: str
    error: BaseException


@dataclass(slots=True)
class Delivered:
    """News of a job that came into a log, and how the session's row stood right after it."""

    session_id: str
    seq: int
    status: str
    due_us: int | None
    now_us: int
    held: bool


@dataclass(slots=True)
class EndSaid:
    """A job's end as the log tells it, and what its hands could say of it at that moment."""

    job_id: str
    outcome: str
    state: Known


@dataclass
class Record:
    """Everything that was seen in one seed. `slept` names the processes that stood still once."""

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
        """The next place in the order of observations."""
        self.ticks += 1
        return self.ticks
